//! `migctl list`: the containers with their slices, and the queue.

use super::filter::Filter;
use super::json::{ForeignItem, InstanceItem, LeaseList, WaitingItem};
use super::output::{self, Output, dash};
use super::{shares, watch, world};
use crate::bundles;
use clap::ValueEnum;
use runmig_lease::config::Config;
use runmig_lease::counters::LeaseKind;
use runmig_lease::error::{Error, Result, printable, short_id};
use runmig_lease::model::Timestamp;
use runmig_lease::store::{Claim, Entry, Holder, Lease, Listing, Waiter, Waiting, is_id_of};
use runmig_lease::{LeaseView, Leases, ObservedShare, UNSEEN_HINT, unseen};
use serde_json::Value;
use std::cmp::Reverse;
use std::time::SystemTime;

/// The columns of the table, and those that `-o wide` adds.
const COLUMNS: [&str; 9] = [
    "CONTAINER",
    "NAME",
    "PROFILE",
    "GPU",
    "PLACEMENT",
    "LEVEL",
    "USED",
    "STATE",
    "AGE",
];
const WIDE_COLUMNS: [&str; 6] = ["MIG UUID", "KIND", "REQUEST", "GPU UUID", "INIT", "LEASE"];

/// A column that can order the leases.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Name,
    Profile,
    Gpu,
    Used,
    State,
    Age,
}

impl By {
    fn order(self, entry: &Entry, seen: &ObservedShare) -> Order {
        let (amount, text) = match self {
            By::Name => (None, entry.lease().map_or_else(String::new, holder_name)),
            By::Profile => (None, portion(entry)),
            By::State => (None, entry.shown_state().to_owned()),
            By::Gpu => (None, String::new()),
            By::Used => (seen.used_bytes, String::new()),
            By::Age => (born(entry), String::new()),
        };
        order(entry, amount, text)
    }
}

/// Where a lease stands: amounts from the largest, texts and places from the first.
pub type Order = (Reverse<Option<u64>>, String, (u32, u32));

pub fn order(entry: &Entry, amount: Option<u64>, text: String) -> Order {
    let start = entry.instance().slice().map_or(0, |s| s.placement.start);
    let place = (entry.instance().resource.gpu_index(), start);
    (Reverse(amount), text, place)
}

/// Returns the time of the create in seconds since 1970, by which the youngest comes first.
pub fn born(entry: &Entry) -> Option<u64> {
    entry.created().since_1970().map(|since| since.as_secs())
}

impl<'a> From<&'a Waiting> for WaitingItem<'a> {
    fn from(w: &'a Waiting) -> Self {
        WaitingItem {
            number: w.number,
            container: &w.waiter.container,
            container_name: w.waiter.name.as_deref(),
            request: &w.waiter.request,
            since: w.waiter.since.as_str(),
            pid: w.waiter.pid,
        }
    }
}

/// Returns the portion of an entry for people: `1g.10gb`, `share 8192Mi`, `10048Mi of 3g.40gb` or `gpu`.
pub fn portion(entry: &Entry) -> String {
    let shown = entry.shown();
    let mib = shown.memory_bytes.unwrap_or_default() >> 20;
    match shown.kind {
        LeaseKind::Seat => format!("{mib}Mi of {}", shown.name),
        LeaseKind::Share => format!("share {mib}Mi"),
        LeaseKind::Slice | LeaseKind::Gpu => shown.name.to_owned(),
    }
}

/// Returns the error for a name that no lease has.
pub fn unknown(id: &str) -> Error {
    Error::new(format!("cannot find container or lease {}", printable(id)))
        .hint("find its name with migctl list")
}

/// Returns the leases and instances that a user means, at least one.
///
/// # Errors
/// Nothing has this name. For a container in the queue, the hint says how to end its wait.
pub fn called(leases: &Leases<'_>, id: &str) -> Result<Vec<Entry>> {
    let mut found = leases.store().list()?.entries;
    found.retain(|entry| entry.id() == id || entry.is_called(id));
    if !found.is_empty() {
        return Ok(found);
    }
    let waiting = leases.store().waiting()?;
    let mut waiters = waiting.into_iter().map(|w| w.waiter);
    let is_it = |w: &Waiter| is_id_of(id, &w.container) || w.name.as_deref() == Some(id);
    Err(match waiters.find(is_it) {
        None => unknown(id),
        Some(waiter) => {
            let (container, pid) = (printable(&waiter.container), waiter.pid);
            Error::new(format!(
                "container {container} has nothing yet: it waits for {}, by process {pid}",
                waiter.request
            ))
            .hint(format!("end that process: kill {pid}"))
        }
    })
}

/// Returns the fields of leases as programs read them, a line each: `migUUID: MIG-…`.
pub fn fields(entries: &[Entry], seen: &[ObservedShare]) -> Vec<String> {
    let mut lines = Vec::new();
    for view in views(entries, seen) {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let Ok(Value::Object(fields)) = serde_json::to_value(view) else {
            continue;
        };
        lines.extend(fields.iter().map(|(name, value)| match value {
            Value::String(text) => format!("{name}: {}", printable(text)),
            other => format!("{name}: {}", printable(&other.to_string())),
        }));
    }
    lines
}

/// Prints the leases, the queue and foreign instances for programs. `seen` has the observations of the first entries.
pub fn json(
    entries: &[Entry],
    seen: &[ObservedShare],
    waiting: &[Waiting],
    foreign: Option<Vec<ForeignItem>>,
) {
    let list = LeaseList {
        items: views(entries, seen),
        waiting: waiting.iter().map(WaitingItem::from).collect(),
        foreign,
    };
    output::json("LeaseList", &list);
}

fn views(entries: &[Entry], seen: &[ObservedShare]) -> Vec<LeaseView> {
    let item = |(n, entry): (usize, &Entry)| {
        let item = LeaseView::from(entry);
        let seen: ObservedShare = seen.get(n).cloned().unwrap_or_default();
        let over = seen.used_bytes.zip(item.memory_bytes);
        LeaseView {
            daemon: shares::daemon_of(entry),
            used_bytes: seen.used_bytes,
            over_bytes: over.map(|(used, memory)| used.saturating_sub(memory)),
            around: seen.around,
            limit_changed: seen.limit_changed.map(|limit| limit.gib()),
            ..item
        }
    };
    entries.iter().enumerate().map(item).collect()
}

#[derive(clap::Args)]
#[command(after_help = format!("\
Examples:
  migctl list                                    prints a row for each lease
  migctl list -o json | jq '.items[].migUUID'    prints the UUID of each slice
  migctl list --watch --namespace team-a         prints the leases of a namespace at each change

{}", shares::levels_help()))]
pub struct Options {
    #[command(flatten)]
    filter: Filter,
    /// Also show the GPU instances that runmig did not make
    #[arg(short, long, conflicts_with = "quiet")]
    all: bool,
    /// The column that orders the leases
    #[arg(long, value_enum)]
    sort: Option<By>,
    /// Leave out the headings of the tables
    #[arg(long)]
    no_headers: bool,
    /// Print the ids of the leases alone, as -o name
    #[arg(short, long, conflicts_with = "output")]
    quiet: bool,
    /// Print all again at each change of the ledger
    #[arg(short, long)]
    watch: bool,
}

pub fn run(config: &Config, output: Output, options: &Options) -> Result<i32> {
    let output = if options.quiet { Output::Name } else { output };
    match options.watch {
        true => watch::at_each_change(config, output, || once(config, output, options)),
        false => once(config, output, options),
    }
}

/// Prints the chosen leases once. Returns the status.
fn once(config: &Config, output: Output, options: &Options) -> Result<i32> {
    let foreign = match options.all {
        true => Some(foreign(config, &options.filter, output != Output::Json)?),
        false => None,
    };
    let leases = bundles::to_look(config)?;
    let (mut entries, waiting) = (leases.store().list()?.entries, leases.store().waiting()?);
    entries.retain(|entry| options.filter.has(entry));
    let mut seen = match (output, options.sort) {
        (Output::Name, by) if by != Some(By::Used) => vec![<_>::default(); entries.len()],
        _ => shares::observe(config, &entries),
    };
    if let Some(by) = options.sort {
        let mut both: Vec<(Entry, ObservedShare)> = entries.into_iter().zip(seen).collect();
        both.sort_by_cached_key(|(entry, seen)| by.order(entry, seen));
        (entries, seen) = both.into_iter().unzip();
    }
    match output {
        Output::Name => entries.iter().for_each(|entry| output::line(entry.id())),
        Output::Json => json(&entries, &seen, &waiting, foreign),
        Output::Table | Output::Wide => {
            let rows = rows(&entries, &seen, output);
            let foreign = foreign.iter().flatten().map(foreign_row);
            let rows: Vec<_> = rows.chain(foreign).collect();
            print(&rows, &waiting, output, options.no_headers);
            tell_attempts(&entries);
        }
    }
    if output != Output::Name {
        tell(&entries, &seen);
    }
    Ok(0)
}

/// Returns the GPU instances that nothing in the ledger tells of.
fn foreign(config: &Config, filter: &Filter, is_table: bool) -> Result<Vec<ForeignItem>> {
    let (_, world) = world::look(config, is_table)?;
    world::tell_unread(&world);
    let mut all = Vec::new();
    for gpu in { world.snapshot.gpus.iter() }.filter(|gpu| filter.has_foreign_on(gpu)) {
        let here = gpu.instances.iter();
        let foreign = here.filter(|i| world.state_at(gpu, i.placement) == "foreign");
        all.extend(foreign.map(|instance| ForeignItem {
            gpu_uuid: gpu.uuid.to_string(),
            gpu_index: gpu.index,
            instance: InstanceItem::new(gpu, instance),
        }));
    }
    Ok(all)
}

fn foreign_row(of: &ForeignItem) -> Vec<String> {
    let mut row = vec!["-".to_owned(); COLUMNS.len()];
    row[1] = format!("GPU instance {}", of.instance.id);
    row[2].clone_from(&of.instance.profile);
    row[3] = of.gpu_index.to_string();
    row[4] = of.instance.mig_placement.to_string();
    row[7] = "foreign".to_owned();
    row
}

/// Prints the leases on record, if there is one.
pub fn without_driver(config: &Config) {
    let listing = bundles::to_look(config).and_then(|leases| leases.store().list());
    if let Ok(Listing { entries, .. }) = listing
        && !entries.is_empty()
    {
        let unseen = vec![ObservedShare::default(); entries.len()];
        let rows = rows(&entries, &unseen, Output::Table);
        print(&rows.collect::<Vec<_>>(), &[], Output::Table, false);
        tell_attempts(&entries);
    }
}

/// Names on standard error the leases that need an administrator.
fn tell(entries: &[Entry], seen: &[ObservedShare]) {
    shares::tell_lost_daemons(entries);
    shares::tell(entries, seen);
    for lease in entries.iter().filter_map(Entry::lease) {
        if let Some(why) = unseen(lease) {
            output::eprint(&format!(
                "runmig cannot see from here whether container {} lives: {why}; hint: {UNSEEN_HINT}",
                holder_name(lease)
            ));
        }
    }
}

fn rows(
    entries: &[Entry],
    seen: &[ObservedShare],
    output: Output,
) -> impl Iterator<Item = Vec<String>> {
    entries.iter().zip(seen).map(move |(entry, seen)| {
        let mut cells = row(entry, seen);
        if output == Output::Wide {
            cells.extend(wide(entry));
        }
        cells
    })
}

/// Prints the leases, and behind an empty line the queue, if there is one.
fn print(leases: &[Vec<String>], waiting: &[Waiting], output: Output, no_headers: bool) {
    let (mut head, mut most) = (COLUMNS.to_vec(), output::WIDTH);
    if output == Output::Wide {
        head.extend(WIDE_COLUMNS);
        most = usize::MAX;
    }
    let lines = |head: &[&str], rows: &[Vec<String>]| {
        let lines = output::table_lines(head, rows, 2, most).into_iter();
        lines.skip(usize::from(no_headers))
    };
    let mut all: Vec<String> = lines(&head, leases).collect();
    let now = SystemTime::now();
    let queue: Vec<Vec<String>> = waiting.iter().map(|w| waits(w, now)).collect();
    if !queue.is_empty() {
        all.push(String::new());
        all.extend(lines(&QUEUE, &queue));
    }
    if !all.is_empty() {
        output::line(&all.join("\n"));
    }
}

/// Names on standard error the leases that could not be released.
fn tell_attempts(entries: &[Entry]) {
    for entry in entries {
        if let Some(attempt) = entry.instance().attempt() {
            let held = match attempt.held_by.as_slice() {
                [] => String::new(),
                some => format!(", held by {}", printable(&some.join(", "))),
            };
            let slice = || entry.instance().slice().map(ToString::to_string);
            output::eprint(&format!(
                "{} could not be released{held} (tries: {}): {}",
                dash(entry.lease().map(holder_name).or_else(slice)),
                attempt.count,
                printable(&attempt.error)
            ));
        }
    }
}

fn row(entry: &Entry, seen: &ObservedShare) -> Vec<String> {
    let instance = entry.instance();
    let mut state = entry.shown_state().to_owned();
    let (lease, is_of_layout) = (entry.lease(), instance.is_of_layout());
    let is_shared = lease.is_some_and(|lease| lease.shared_in.is_some());
    let is_around = seen.around.as_ref().is_some_and(|pids| !pids.is_empty());
    for (word, applies) in [
        (", layout", is_of_layout && lease.is_some()),
        (", adopted", !is_of_layout && instance.is_adopted()),
        (", shared", is_shared),
        (", daemon ended", shares::lost_daemon(entry)),
        (", limit changed", seen.limit_changed.is_some()),
        (", around MPS", is_around),
    ] {
        state.push_str(if applies { word } else { "" });
    }
    vec![
        { entry.claim() }.map_or_else(|| short(entry.holder()), Claim::title),
        dash(lease.and_then(name)),
        portion(entry),
        instance.resource.gpu_index().to_string(),
        dash(instance.slice().map(|s| s.placement.to_string())),
        entry.shown().enforcement.unwrap_or("-").to_owned(),
        dash(seen.used_bytes.map(mib)),
        state,
        age(entry.created(), SystemTime::now()),
    ]
}

/// Returns a number of bytes in MiB, rounded up.
pub fn mib(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(1 << 20))
}

/// Returns the cells that `-o wide` adds.
fn wide(entry: &Entry) -> [String; 6] {
    let shown = entry.shown();
    let slice = entry.instance().slice();
    let mig_uuid = slice.and_then(|s| s.mig_uuid.clone());
    let init = entry.lease().and_then(|lease| lease.init);
    [
        dash(mig_uuid),
        shown.kind.word().to_owned(),
        dash(entry.lease().map(|lease| lease.request.clone())),
        entry.instance().resource.gpu_uuid().to_string(),
        dash(init.map(|init| init.pid.to_string())),
        entry.id().to_owned(),
    ]
}

fn name(lease: &Lease) -> Option<String> {
    match &lease.holder {
        Holder::Container(container) => container.full_name(),
        Holder::Claim(claim) => claim.pod(),
    }
}

/// Returns the lease's holder, as people know it: `default/web-0/main`, `web (4f2a9c1d03be)`, or
/// `claim team-a/train-gpu (pod team-a/train)`.
pub fn holder_name(lease: &Lease) -> String {
    let name = lease.claim().map(Claim::to_string);
    printable(&name.unwrap_or_else(|| lease.holder.shown()))
}

/// The columns of the queue.
pub const QUEUE: [&str; 5] = ["WAITING", "NAME", "REQUEST", "FOR", "PID"];

/// Returns the cells of a queued request.
pub fn waits(Waiting { waiter: w, .. }: &Waiting, now: SystemTime) -> Vec<String> {
    vec![
        short(&w.container),
        printable(w.name.as_deref().unwrap_or("-")),
        w.request.clone(),
        age(&w.since, now),
        w.pid.to_string(),
    ]
}

fn short(id: &str) -> String {
    match short_id(id) {
        "" => "-".to_owned(),
        id => id.to_owned(),
    }
}

/// Returns an age as kubectl prints it: the two largest units.
pub fn age(created: &Timestamp, now: SystemTime) -> String {
    let age = created
        .time()
        .and_then(|then| now.duration_since(then).ok());
    match age.unwrap_or_default().as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
