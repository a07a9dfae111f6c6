//! From facts to families, without any effect. It knows no kind of resource or holder: their words come from the
//! ledger.

use super::facts::{Facts, OfGpu};
use super::table;
use super::text::Families;
use crate::cli::draw::mode_word;
use crate::cli::gpus::use_word;
use runmig_lease::counters::{
    Actor, Counter, Counts, HolderKind, LeaseKind, Outcome, Part, ResourceKind, Times,
};
use runmig_lease::model::{Closed, MigMode};
use runmig_lease::policy::{self, LimitAccount, Policy, Used};
use runmig_lease::request::kind_of_written;
use runmig_lease::store::{Entry, Instance, InstanceState};
use runmig_lease::{GpuParts, SliceView, placement};
use std::collections::BTreeMap;

/// Returns the families of a machine at one moment. Unknown values are absent.
pub fn exposition(facts: &Facts, policy: &Policy) -> Families {
    let mut families = Families::default();
    let all = &mut families;
    all.info(&table::BUILD, &[env!("CARGO_PKG_VERSION")]);
    driver(all, facts);
    let entries = facts.inventory.entries();
    let unread = u8::from(facts.inventory.unread.is_some());
    all.add(&table::RECORDS_UNREADABLE, &[], f64::from(unread));
    if !facts.inventory.counters.is_empty() {
        add_counters(all, &facts.inventory.counters);
    }
    add_gpus(all, facts);
    if facts.inventory.unread.is_none() {
        on_record(all, facts, &entries);
        waiting(all, facts);
        for account in policy.accounts(&facts.inventory.usage()) {
            limit(all, &account, facts);
        }
        // One series for each GPU instance, because a join allows no second one.
        for slice in facts.inventory.slices(&entries) {
            add_slice(all, facts, &slice);
        }
        leases(all, facts, &entries);
    }
    let seconds = facts.begun.elapsed().as_secs_f64();
    all.add(&table::EXPOSITION_SECONDS, &[], seconds);
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
    let mut leases = zeros(LeaseKind::WORDS, &Entry::LEASE_STATES);
    for entry in entries.iter().filter(|entry| entry.lease().is_some()) {
        let key = (entry.shown().kind.word(), entry.shown_state());
        *leases.entry(key).or_default() += 1;
    }
    let mut instances = zeros(ResourceKind::WORDS, &InstanceState::WORDS);
    let kind_and_state = |i: &Instance| (ResourceKind::of(&i.resource), i.state.word());
    let on_record = facts.inventory.instances().map(kind_and_state);
    let daemons = entries.iter().filter_map(|entry| {
        let daemon = entry.lease()?.daemon()?;
        // It may have ended while the driver keeps its slice.
        let state = match entry.shown_state() {
            "quarantined" if daemon.attempt.is_none() => "releasing",
            state => state,
        };
        Some((ResourceKind::Mps, state))
    });
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
    let none = |kind: &&'static str| ((*kind, String::new()), 0);
    let mut counts: BTreeMap<_, u64> = LeaseKind::WORDS.iter().map(none).collect();
    for waiting in queue {
        let (kind, profile) = kind_of_written(&waiting.waiter.request);
        let key = (kind, profile.unwrap_or_default());
        *counts.entry(key).or_default() += 1;
    }
    for ((kind, profile), count) in counts {
        families.known(&table::WAITING, &[kind, &profile], Some(count));
    }
    let since = { queue.iter() }.filter_map(|w| w.waiter.since.since_1970());
    if let Some(oldest) = since.min() {
        families.add(&table::WAITING_OLDEST, &[], oldest.as_secs_f64());
    }
}

fn limit(families: &mut Families, account: &LimitAccount, facts: &Facts) {
    let number = account.number.to_string();
    let (namespace, pod) = (text(account.namespace.as_ref()), text(account.pod.as_ref()));
    let user = text(account.user);
    // Without the driver the memory of a slice is that of its name, which is a little more.
    let is_known = !facts.inventory.snapshot.driver_version.is_empty();
    for Used { amount, used, most } in &account.amounts {
        let labels = [&*number, amount, &*namespace, &*pod, &*user];
        families.known(&table::LIMIT, &labels, Some(*most));
        let used = Some(*used).filter(|_| is_known || *amount != policy::MEMORY);
        families.known(&table::LIMIT_USED, &labels, used);
    }
}

fn leases(families: &mut Families, facts: &Facts, entries: &[Entry]) {
    for entry in entries {
        let Some(lease) = entry.lease() else {
            continue;
        };
        let (shown, names) = (entry.shown(), lease.holder.names());
        let resource = &entry.instance().resource;
        let slice = entry.instance().slice();
        let instance = text(slice.and_then(|slice| slice.gpu_instance));
        let id = lease.id.as_str();
        families.info(
            &table::LEASE,
            &[
                id,
                shown.kind.word(),
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
        if let Some(created) = lease.created.since_1970() {
            families.add(&table::LEASE_CREATED, &[id], created.as_secs_f64());
        }
    }
}

/// Adds the counts of a boot. Everything that a create or a release can be has a count also at 0, so that no rate misses
/// the first.
fn add_counters(families: &mut Families, counts: &Counts) {
    let get = |counter| counts.get(counter) as f64;
    for kind in LeaseKind::ALL {
        for holder in HolderKind::ALL {
            // A claim has slices alone.
            if *holder == HolderKind::Claim && *kind != LeaseKind::Slice {
                continue;
            }
            for outcome in Outcome::ALL {
                let labels = [kind.word(), holder.word(), outcome.word()];
                let count = get(Counter::Creates(*kind, *holder, *outcome));
                families.add(&table::CREATES, &labels, count);
            }
        }
        for part in Part::ALL {
            if let Some(times) = counts.times(Times::Create(*kind, *part)) {
                let labels = [kind.word(), part.word()];
                families.histogram(&table::CREATE_SECONDS, &labels, times);
            }
        }
        for by in Actor::ALL {
            let labels = [kind.word(), by.word()];
            let count = get(Counter::Releases(*kind, *by));
            families.add(&table::RELEASES, &labels, count);
        }
        if let Some(times) = counts.times(Times::Release(*kind)) {
            families.histogram(&table::RELEASE_SECONDS, &[kind.word()], times);
        }
    }
    for of in ResourceKind::ALL {
        let labels = [of.word()];
        let retries = get(Counter::DestroyRetries(*of));
        families.add(&table::DESTROY_RETRIES, &labels, retries);
        families.add(&table::QUARANTINES, &labels, get(Counter::Quarantines(*of)));
    }
    for (code, count) in counts.driver_errors() {
        families.add(&table::DRIVER_ERRORS, &[code], count as f64);
    }
    if counts.last_collection > 0 {
        families.add(&table::COLLECTION_LAST, &[], counts.last_collection as f64);
    }
}

/// Adds the families of GPUs. Without the driver there are none.
fn add_gpus(families: &mut Families, facts: &Facts) {
    let answers = facts.driver.iter().flat_map(|driver| &driver.gpus);
    for (gpu, of) in facts.inventory.snapshot.gpus.iter().zip(answers) {
        let (uuid, index) = (gpu.uuid.as_str(), gpu.index.to_string());
        families.info(
            &table::GPU,
            &[
                uuid,
                &index,
                &gpu.name,
                &format!("nvidia{index}"),
                &gpu.pci_bus_id,
                mode_word(gpu.mig),
                gpu.mig_pending.map(mode_word).unwrap_or_default(),
                use_word(&of.state.usage),
            ],
        );
        for reason in gpu.closed.iter().flat_map(Closed::reasons) {
            families.known(&table::GPU_CLOSED, &[uuid, &index, &reason], Some(1));
        }
        for (profile, free) in gpu.profiles.iter().zip(&of.free) {
            let labels = [uuid, &index, &profile.name];
            families.known(&table::GPU_PROFILE_FREE, &labels, free.map(u64::from));
            let max = u64::from(profile.max_instances);
            families.known(&table::GPU_PROFILE_MAX, &labels, Some(max));
        }
        if facts.inventory.unread.is_some() {
            continue;
        }
        let parts = facts.inventory.parts(gpu, &of.state, of.total_mib);
        for (family, amounts) in [
            (&table::GPU_MEMORY, parts.memory_bytes),
            (&table::GPU_MEMORY_SLICES, Some(parts.memory_slices)),
            (&table::GPU_COMPUTE_SLICES, parts.compute_slices),
        ] {
            for (state, amount) in GpuParts::STATES.iter().zip(amounts.into_iter().flatten()) {
                families.known(family, &[uuid, &index, state], Some(amount));
            }
        }
        let room = facts.inventory.room(gpu);
        if gpu.mig == MigMode::Enabled
            && let Some(percent) = placement::fragmentation(&room)
        {
            let ratio = f64::from(percent) / 100.0;
            families.add(&table::GPU_FRAGMENTATION, &[uuid, &index], ratio);
        }
    }
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn add_slice(families: &mut Families, facts: &Facts, slice: &SliceView<'_>) {
    let uuid = slice.gpu_uuid.as_str();
    let index = slice.gpu_index.to_string();
    let instance = text(slice.gpu_instance);
    let gpu = of_gpu(facts, slice);
    let state = slice.state.or_else(|| gpu?.state.word());
    families.info(
        &table::SLICE,
        &[
            uuid,
            &index,
            &instance,
            slice.kind(),
            slice.profile.as_deref().unwrap_or_default(),
            slice.mig_uuid.unwrap_or_default(),
            &text(slice.placement),
            state.unwrap_or_default(),
            slice.holder(|names| names.namespace),
            slice.holder(|names| names.pod),
            slice.holder(|names| names.container),
            slice.holder(|names| names.claim),
            slice.lease(),
        ],
    );
    // A GPU outside of MIG mode is one compute slice with all memory.
    let (memory_mib, compute) = match (slice.placement, slice.offered) {
        (None, _) => (gpu.and_then(|gpu| gpu.total_mib), gpu.map(|_| 1)),
        (Some(_), profile) => (
            profile.map(|profile| profile.memory_mib),
            profile.map(|profile| u64::from(profile.compute_slices)),
        ),
    };
    let key = (slice.gpu_uuid.clone(), slice.gpu_instance);
    let used = { facts.driver.as_ref() }.and_then(|driver| driver.used_on_slice.get(&key));
    let labels = [uuid, &index, &instance];
    let memory = memory_mib.map(|mib| mib << 20);
    families.known(&table::SLICE_MEMORY, &labels, memory);
    families.known(&table::SLICE_MEMORY_USED, &labels, used.copied());
    families.known(&table::SLICE_COMPUTE_SLICES, &labels, compute);
}

/// Returns the driver's answers about the GPU of a slice.
fn of_gpu<'a>(facts: &'a Facts, slice: &SliceView<'_>) -> Option<&'a OfGpu> {
    let mut gpus = facts.inventory.snapshot.gpus.iter();
    let at = gpus.position(|gpu| gpu.uuid == *slice.gpu_uuid)?;
    facts.driver.as_ref()?.gpus.get(at)
}
