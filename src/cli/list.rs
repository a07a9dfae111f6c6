//! `migctl list`: the containers with their slices, and the queue.

use super::again;
use super::claims;
use super::daemons;
use super::filter::Filter;
use super::json::{LeaseList, WaitingItem};
use super::output::{self, Output};
use super::seat;
use super::shares;
use crate::bundles;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Result, printable};
use runmig_lease::model::Timestamp;
use runmig_lease::store::{Claim, Damaged, Entry, Lease, Listing, Waiting};
use runmig_lease::{LeaseView, ObservedShare, UNSEEN_HINT, unseen};
use std::time::{Duration, SystemTime};

/// The columns of the table, and those that `-o wide` adds.
const COLUMNS: [&str; 10] = [
    "CONTAINER",
    "POD",
    "PROFILE",
    "GPU",
    "PLACEMENT",
    "MIG UUID",
    "LEVEL",
    "USED",
    "STATE",
    "AGE",
];
const WIDE_COLUMNS: [&str; 5] = ["KIND", "REQUEST", "GPU UUID", "INIT", "LEASE"];

impl<'a> From<&'a Waiting> for WaitingItem<'a> {
    fn from(w: &'a Waiting) -> Self {
        let waiter = w.waiter.as_ref();
        WaitingItem {
            number: w.number,
            container: waiter.map(|w| w.container.as_str()),
            request: waiter.map(|w| w.request.as_str()),
            since: waiter.map(|w| w.since.as_str()),
            pid: waiter.map(|w| w.pid),
        }
    }
}

/// Returns the portion of an entry for people: `1g.10gb`, `share 8192Mi` or `gpu`.
pub fn portion(entry: &Entry) -> String {
    if let Some(seat) = seat::portion(entry) {
        return seat;
    }
    match entry.lease().and_then(Lease::share) {
        Some(share) => format!("share {}Mi", share.memory_mib),
        None => entry.shown().name.to_owned(),
    }
}

/// Prints the leases and the queue for programs. `seen` has the observations of the first entries.
pub fn json(entries: &[Entry], seen: &[ObservedShare], waiting: &[Waiting]) {
    let item = |(n, entry): (usize, &Entry)| {
        let item = LeaseView::from(entry);
        let seen: ObservedShare = seen.get(n).cloned().unwrap_or_default();
        let over = seen.used_bytes.zip(item.memory_bytes);
        LeaseView {
            daemon: daemons::of(entry),
            used_bytes: seen.used_bytes,
            over_bytes: over.map(|(used, memory)| used.saturating_sub(memory)),
            around: seen.around,
            limit_changed: seen.limit_changed.map(|limit| limit.gib()),
            ..item
        }
    };
    output::json(&LeaseList {
        items: entries.iter().enumerate().map(item).collect(),
        waiting: waiting.iter().map(WaitingItem::from).collect(),
    });
}

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    filter: Filter,
    /// Print all again at each change of the ledger
    #[arg(short, long)]
    watch: bool,
}

pub fn run(config: &Config, output: Output, options: &Options) -> Result<i32> {
    match options.watch {
        true => again::at_each_change(config, output, || once(config, output, &options.filter)),
        false => once(config, output, &options.filter),
    }
}

/// Prints the chosen leases once. Returns the status: 1 if a record cannot be read.
fn once(config: &Config, output: Output, filter: &Filter) -> Result<i32> {
    let (listing, waiting) = match bundles::existing(config, Actor::Operator)? {
        Some(leases) => (leases.store().list()?, leases.store().waiting()?),
        None => <(Listing, _)>::default(),
    };
    let (mut entries, damaged) = (listing.entries, listing.damaged);
    entries.retain(|entry| filter.has(entry));
    if output == Output::Name {
        entries.iter().for_each(|entry| output::line(entry.id()));
    } else {
        let seen = shares::observe(config, &entries);
        match output {
            Output::Json => json(&entries, &seen, &waiting),
            _ => table(&entries, &seen, &waiting, output == Output::Wide),
        }
        tell(&entries, &seen);
    }
    for record in &damaged {
        match record.unfinished() {
            Some(lease) => tell_unfinished(lease),
            None => tell_damaged(record),
        }
    }
    let is_whole = damaged.iter().all(|d| d.unfinished().is_some());
    Ok(i32::from(!is_whole))
}

/// Prints the leases on record, if there is one.
pub fn without_driver(config: &Config) {
    let leases = bundles::existing(config, Actor::Operator).ok().flatten();
    let listing = leases.and_then(|leases| leases.store().list().ok());
    let entries = listing.map_or(Vec::new(), |listing| listing.entries);
    if !entries.is_empty() {
        let unseen = vec![ObservedShare::default(); entries.len()];
        table(&entries, &unseen, &[], false);
    }
}

/// Names on standard error the leases that need an administrator.
fn tell(entries: &[Entry], seen: &[ObservedShare]) {
    daemons::tell(entries);
    shares::tell(entries, seen);
    for lease in entries.iter().filter_map(Entry::lease) {
        if let Some(why) = unseen(lease) {
            output::eprint(&format!(
                "runmig cannot see from here whether container {} lives: {why}; hint: {UNSEEN_HINT}",
                printable(&container(lease))
            ));
        }
    }
}

fn table(entries: &[Entry], seen: &[ObservedShare], waiting: &[Waiting], is_wide: bool) {
    let mut head = COLUMNS.to_vec();
    if is_wide {
        head.extend(WIDE_COLUMNS);
    }
    let cells = |(entry, seen)| {
        let mut cells = row(entry, seen);
        if is_wide {
            cells.extend(wide(entry));
        }
        cells
    };
    let rows: Vec<Vec<String>> = entries.iter().zip(seen).map(cells).collect();
    output::table(&head, &rows);
    if !waiting.is_empty() {
        output::line("");
        let now = SystemTime::now();
        let rows: Vec<Vec<String>> = waiting.iter().map(|w| waits(w, now)).collect();
        output::table(&QUEUE, &rows);
    }
    for entry in entries {
        if let Some(attempt) = entry.instance().attempt() {
            let held = match attempt.held_by.as_slice() {
                [] => String::new(),
                some => format!(", held by {}", printable(&some.join(", "))),
            };
            output::eprint(&format!(
                "{} could not be released{held}, {} tries so far: {}",
                printable(
                    &claims::of(entry).map_or_else(|| short(entry.holder()), Claim::to_string)
                ),
                attempt.count,
                printable(&attempt.error)
            ));
        }
    }
}

fn tell_unfinished(lease: &Lease) {
    output::eprint(&format!(
        "lease {} of {} has no instance: a kill ended its create or its release; hint: migctl gc removes it",
        lease.id,
        printable(&lease.holder.title())
    ));
}

fn tell_damaged(damaged: &Damaged) {
    let kept = match (damaged.place(), damaged.id()) {
        (Some(place), Some(id)) if damaged.booked_mib().is_some() => format!(
            "; {}Mi of GPU {} stay booked for lease {id}, until its container is deleted or migctl release {id} is \
             run",
            damaged.booked_mib().unwrap_or_default(),
            place.gpu_uuid
        ),
        (Some(place), Some(id)) => format!(
            "; {} on GPU {} stays taken for lease {id}, until its container is deleted or migctl release \
             {id} is run",
            place.placement, place.gpu_uuid
        ),
        _ => String::new(),
    };
    output::eprint(&format!(
        "lease {} cannot be read: {}{kept}",
        printable(&damaged.file.to_string_lossy()),
        damaged.why.line()
    ));
}

fn row(entry: &Entry, seen: &ObservedShare) -> Vec<String> {
    let slice = entry.instance().resource.mig_slice();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut state = entry.shown_state().to_owned();
    let is_leased = entry.lease().is_some();
    match entry.instance() {
        instance if instance.is_of_layout() && is_leased => state.push_str(", layout"),
        instance if instance.is_of_layout() => {}
        instance if instance.is_adopted() => state.push_str(", adopted"),
        _ => {}
    }
    if entry.lease().is_some_and(|l| l.shared_in.is_some()) {
        state.push_str(", shared");
    }
    if daemons::has_ended(entry) {
        state.push_str(", daemon ended");
    }
    if seen.limit_changed.is_some() {
        state.push_str(", limit changed");
    }
    if seen.around.as_ref().is_some_and(|pids| !pids.is_empty()) {
        state.push_str(", around MPS");
    }
    vec![
        claims::of(entry).map_or_else(|| short(entry.holder()), claims::name),
        entry.lease().map_or("-".to_owned(), pod),
        portion(entry),
        entry.instance().resource.gpu_index().to_string(),
        or_dash(slice.map(|s| s.placement.to_string())),
        or_dash(slice.and_then(|s| s.mig_uuid.clone())),
        entry.shown().enforcement.unwrap_or("-").to_owned(),
        or_dash(
            seen.used_bytes
                .map(|bytes| format!("{}Mi", bytes.div_ceil(1 << 20))),
        ),
        state,
        age(entry.created(), SystemTime::now()),
    ]
}

/// Returns the cells that `-o wide` adds.
fn wide(entry: &Entry) -> [String; 5] {
    let shown = entry.shown();
    let init = entry.lease().and_then(|lease| lease.init);
    [
        shown.kind.to_owned(),
        { entry.lease() }.map_or("-".to_owned(), |lease| lease.request.clone()),
        entry.instance().resource.gpu_uuid().as_str().to_owned(),
        init.map_or("-".to_owned(), |init| init.pid.to_string()),
        entry.id().to_owned(),
    ]
}

fn pod(lease: &Lease) -> String {
    let pod = lease.claim().map_or_else(|| named(lease), claims::pod);
    pod.unwrap_or_else(|| "-".to_owned())
}

/// Returns the name of a lease's container in its pod, or alone: `default/web-0/main`.
fn named(lease: &Lease) -> Option<String> {
    let holder = lease.container()?;
    match (&holder.namespace, &holder.pod, &holder.container_name) {
        (Some(namespace), Some(pod), Some(name)) => Some(format!("{namespace}/{pod}/{name}")),
        (Some(namespace), Some(pod), None) => Some(format!("{namespace}/{pod}")),
        (_, _, Some(name)) => Some(name.clone()),
        _ => None,
    }
}

/// Returns the lease's holder, as people know it: `default/web-0/main`, the container's id, or
/// `claim team-a/train-gpu (pod team-a/train)`.
pub fn holder_name(lease: &Lease) -> String {
    if let Some(claim) = lease.claim() {
        return printable(&claim.to_string());
    }
    printable(&named(lease).unwrap_or_else(|| container(lease)))
}

/// The columns of the queue.
pub const QUEUE: [&str; 4] = ["WAITING", "REQUEST", "FOR", "PID"];

/// Returns the cells of a queued request.
pub fn waits(w: &Waiting, now: SystemTime) -> Vec<String> {
    match &w.waiter {
        Some(w) => vec![
            short(&w.container),
            w.request.clone(),
            age(&w.since, now),
            w.pid.to_string(),
        ],
        None => vec!["-".to_owned(); 4],
    }
}

/// Returns the name of a lease's container.
pub fn container(l: &Lease) -> String {
    short(l.holder.name())
}

fn short(id: &str) -> String {
    match id.len() {
        0 => "-".to_owned(),
        // Engines print the first 12 characters of their random ids.
        64 => id.chars().take(12).collect(),
        _ => id.to_owned(),
    }
}

/// Returns an age as kubectl prints it: the two largest units.
pub fn age(created: &Timestamp, now: SystemTime) -> String {
    let seconds = created
        .time()
        .and_then(|then| now.duration_since(then).ok())
        .unwrap_or(Duration::ZERO)
        .as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
