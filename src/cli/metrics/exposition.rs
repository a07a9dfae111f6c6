//! From facts to families, without any effect. It knows no kind of resource or holder: their words come from the
//! ledger.

use super::counters;
use super::facts::Facts;
use super::table;
use super::text::Families;
use super::{gpus, slices};
use runmig_lease::counters::ResourceKind;
use runmig_lease::model::Timestamp;
use runmig_lease::policy::{LimitAccount, Policy, Used};
use runmig_lease::request::kind_of_written;
use runmig_lease::store::{Entry, InstanceState, Shown};
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// Returns the families of a machine at one moment. Unknown values are absent.
pub fn exposition(facts: &Facts, policy: &Policy) -> Families {
    let mut families = Families::default();
    let all = &mut families;
    all.info(&table::BUILD, &[env!("CARGO_PKG_VERSION")]);
    driver(all, facts);
    let entries = facts.inventory.entries();
    let unread = u8::from(facts.inventory.unread.is_some());
    all.add(&table::RECORDS_UNREADABLE, &[], f64::from(unread));
    let counts = &facts.inventory.counters;
    if !counts.is_empty() {
        counters::add(all, counts);
    }
    gpus::add(all, facts);
    if facts.inventory.unread.is_none() {
        on_record(all, facts, &entries);
        waiting(all, facts);
        for account in facts.inventory.limit_accounts(policy) {
            limit(all, &account, facts);
        }
        slices::add(all, facts, &entries);
        leases(all, facts, &entries);
    }
    all.add(
        &table::EXPOSITION_SECONDS,
        &[],
        facts.begun.elapsed().as_secs_f64(),
    );
    families
}

fn driver(families: &mut Families, facts: &Facts) {
    let Some(driver) = &facts.driver else {
        return;
    };
    let version = &facts.inventory.snapshot.driver_version;
    if !version.is_empty() {
        families.info(&table::DRIVER, &[version]);
    }
    let is_up = driver.failures.is_empty();
    families.add(&table::DRIVER_UP, &[], f64::from(u8::from(is_up)));
}

/// Counts leases and instances. Each state has a series also at 0, so that no alert misses the first.
fn on_record(families: &mut Families, facts: &Facts, entries: &[Entry]) {
    let mut leases = zeros(&Shown::KINDS, &Entry::LEASE_STATES);
    for entry in entries.iter().filter(|entry| entry.lease().is_some()) {
        *leases
            .entry((entry.shown().kind, entry.shown_state()))
            .or_default() += 1;
    }
    let kinds: Vec<&str> = { ResourceKind::ALL.iter() }
        .map(|kind| kind.word())
        .collect();
    let mut instances = zeros(&kinds, &InstanceState::WORDS);
    let on_record =
        { facts.inventory.instances() }.map(|i| (ResourceKind::of(&i.resource), i.state.word()));
    let is_with_daemon = |entry: &&Entry| entry.lease().is_some_and(|l| l.daemon().is_some());
    let daemons = { entries.iter().filter(is_with_daemon) }
        .map(|entry| (ResourceKind::Mps, entry.shown_state()));
    for (kind, state) in on_record.chain(daemons) {
        *instances.entry((kind.word(), state)).or_default() += 1;
    }
    for (family, counts) in [(&table::LEASES, leases), (&table::INSTANCES, instances)] {
        for ((kind, state), count) in counts {
            families.known(family, &[kind, state], Some(count));
        }
    }
}

type Numbers = BTreeMap<(&'static str, &'static str), u64>;

fn zeros(kinds: &[&'static str], states: &[&'static str]) -> Numbers {
    let pairs = kinds
        .iter()
        .flat_map(|kind| states.iter().map(|state| (*kind, *state)));
    pairs.map(|pair| (pair, 0)).collect()
}

fn waiting(families: &mut Families, facts: &Facts) {
    let queue = &facts.inventory.waiting;
    let mut counts: BTreeMap<(&str, String), u64> = Shown::KINDS
        .iter()
        .map(|kind| ((*kind, String::new()), 0))
        .collect();
    for waiting in queue {
        let (kind, profile) = kind_of_written(&waiting.waiter.request);
        *counts
            .entry((kind, profile.unwrap_or_default()))
            .or_default() += 1;
    }
    for ((kind, profile), count) in counts {
        families.known(&table::WAITING, &[kind, &profile], Some(count));
    }
    let since = queue.iter().filter_map(|w| seconds(&w.waiter.since));
    if let Some(oldest) = since.min_by(f64::total_cmp) {
        families.add(&table::WAITING_OLDEST, &[], oldest);
    }
}

fn limit(families: &mut Families, account: &LimitAccount, facts: &Facts) {
    let number = account.number.to_string();
    let user = account.user.map(|id| id.to_string()).unwrap_or_default();
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let (namespace, pod) = (name(&account.namespace), name(&account.pod));
    let labels = [&*number, &*namespace, &*pod, &*user];
    // Without the driver the memory of a slice is that of its name, which is a little more.
    let is_known = !facts.inventory.snapshot.driver_version.is_empty();
    let mut add = |most, used, amounts: Option<Used>, is_known| {
        families.known(most, &labels, amounts.map(|a| a.most));
        families.known(used, &labels, amounts.filter(|_| is_known).map(|a| a.used));
    };
    use table::{LIMIT_GPUS, LIMIT_MEMORY, LIMIT_SHARES, LIMIT_SLICES};
    use table::{LIMIT_USED_GPUS, LIMIT_USED_MEMORY, LIMIT_USED_SHARES, LIMIT_USED_SLICES};
    add(&LIMIT_SLICES, &LIMIT_USED_SLICES, account.slices, true);
    add(&LIMIT_SHARES, &LIMIT_USED_SHARES, account.shares, true);
    add(&LIMIT_GPUS, &LIMIT_USED_GPUS, account.gpus, true);
    let memory = account.memory_bytes;
    add(&LIMIT_MEMORY, &LIMIT_USED_MEMORY, memory, is_known);
}

fn leases(families: &mut Families, facts: &Facts, entries: &[Entry]) {
    for entry in entries {
        let Some(lease) = entry.lease() else {
            continue;
        };
        let (shown, names) = (entry.shown(), lease.holder.names());
        let resource = &entry.instance().resource;
        let slice = entry.instance().slice();
        let instance = slice.and_then(|slice| slice.gpu_instance);
        let instance = instance.map(|id| id.to_string()).unwrap_or_default();
        let id = lease.id.as_str();
        families.info(
            &table::LEASE,
            &[
                id,
                shown.kind,
                resource.gpu_uuid().as_str(),
                &instance,
                entry.shown_state(),
                shown.enforcement.unwrap_or_default(),
                names.namespace.unwrap_or_default(),
                names.pod.unwrap_or_default(),
                names.container.unwrap_or_default(),
                names.container_id.unwrap_or_default(),
                names.claim.unwrap_or_default(),
                &lease.request,
            ],
        );
        let used = facts.driver.as_ref().and_then(|d| d.used_by_lease.get(id));
        families.known(&table::LEASE_MEMORY, &[id], shown.memory_bytes);
        families.known(&table::LEASE_BOOKED, &[id], shown.booked_bytes);
        families.known(&table::LEASE_MEMORY_USED, &[id], used.copied());
        if let Some(created) = seconds(&lease.created) {
            families.add(&table::LEASE_CREATED, &[id], created);
        }
    }
}

/// Returns a time in seconds of the epoch. None if a record has another text there.
fn seconds(time: &Timestamp) -> Option<f64> {
    let since = time.time()?.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs_f64())
}
