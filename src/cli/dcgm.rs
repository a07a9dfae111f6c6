//! `migctl dcgm reload`: tells dcgm-exporter to list the MIG instances again.
//!
//! dcgm-exporter lists them at its start and after a SIGHUP, and drops a signal that comes too soon after another. So the
//! calls of `reload` take turns, and each waits until a signal is due. It looks at the instances right before the signals,
//! and notes them after: a later change is one that the note lacks.

use super::json::{Items, ReloadItem};
use super::output::{self, Format};
use super::world;
use clap::Subcommand;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::store::{ReloadTurn, Store};
use runmig_lease::{files, process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Subcommand)]
pub enum Verb {
    /// Tell every dcgm-exporter of this machine to list the MIG instances again
    ///
    /// Two reloads are dcgm.reload_every apart: a call waits for its turn. dcgm-exporter has no series for 2 to 3 s after
    /// one.
    Reload {
        /// Tell only those that have not listed the present instances
        #[arg(long)]
        if_changed: bool,
    },
}

pub fn run(config: &Config, format: Format, verb: &Verb) -> Result<i32> {
    let Verb::Reload { if_changed } = verb;
    if running().is_empty() {
        let what = "cannot reload dcgm-exporter: no process of that name runs";
        let hint = "start dcgm-exporter, or call migctl in the pid namespace of the host";
        return Err(Error::new(what).hint(hint));
    }
    let memory = Memory::lock(config)?;
    let targets = |instances: &BTreeSet<String>| -> Vec<i32> {
        let is_due = |pid: &i32| !*if_changed || !memory.knows(*pid, instances);
        running().into_iter().filter(is_due).collect()
    };
    let mut seen = None;
    if *if_changed {
        let instances = instances(config);
        if targets(&instances).is_empty() {
            print(format, &[]);
            return Ok(0);
        }
        seen = Some(instances);
    }
    if let Some(rest) = memory.time_left(config.dcgm.reload_every) {
        std::thread::sleep(rest);
        seen = None;
    }
    let instances = seen.unwrap_or_else(|| instances(config));
    let told: Vec<ReloadItem> = targets(&instances).into_iter().map(reload).collect();
    let still = told.iter().filter(|item| item.outcome != RELOADS);
    memory.note(instances, still.map(|item| item.pid).collect())?;
    print(format, &told);
    Ok(i32::from(told.iter().any(|item| item.outcome == FAILED)))
}

/// Returns the name of each MIG instance of the machine, and of each GPU that the driver cannot read.
fn instances(config: &Config) -> BTreeSet<String> {
    let Ok((_, world)) = world::look(config, false) else {
        return BTreeSet::from(["unreadable".to_owned()]);
    };
    let names = world.snapshot.gpus.iter().flat_map(|gpu| {
        let of_gpu = gpu.instances.iter();
        of_gpu.map(|instance| format!("{}/{}", gpu.uuid.as_str(), instance.id))
    });
    let unreadable =
        { world.snapshot.unreadable.iter() }.map(|(gpu, _)| format!("unreadable/{gpu}"));
    // The driver gives the id of an instance again; the ledger's own are those of one instance each.
    let entries = world.entries();
    let on_record = entries.iter().map(|entry| entry.instance());
    let slices = on_record.filter(|instance| instance.slice().is_some());
    let ids = slices.map(|instance| instance.id.as_str().to_owned());
    names.chain(unreadable).chain(ids).collect()
}

fn print(format: Format, items: &[ReloadItem]) {
    match format {
        Format::Json => output::json("ReloadList", &Items { items }),
        // A unit calls this: no line about nothing.
        Format::Table if items.is_empty() => {}
        Format::Table => {
            let row = |item: &ReloadItem| {
                let words = [&item.pid.to_string(), item.outcome, item.why.unwrap_or("-")];
                words.map(str::to_owned).to_vec()
            };
            let rows: Vec<Vec<String>> = items.iter().map(row).collect();
            output::table(&["DCGM-EXPORTER", "OUTCOME", "WHY"], &rows);
        }
    }
}

const EXPORTER: &str = "dcgm-exporter";
const MAX_STATUS: u64 = 64 * 1024;
/// The age at which dcgm-exporter waits for signals.
const GROWN: Duration = Duration::from_secs(10);

/// The outcome for a process that has the signal, and for one whose signal the kernel refused.
const RELOADS: &str = "reloads";
const FAILED: &str = "failed";

/// Returns the processes that run.
fn running() -> Vec<i32> {
    process::called(EXPORTER)
}

/// Sends SIGHUP to a process that catches it. Go's runtime catches all signals from its start, and ends the process
/// until the program asks for this one.
fn reload(pid: i32) -> ReloadItem {
    const STARTS: &str = "it may not wait for signals yet, and lists the instances at its start";
    let (outcome, why) = match is_ready(pid) {
        // The signal could end it.
        Some(false) => ("starts", Some(STARTS)),
        None => ("ended", None),
        Some(true) => match kill(Pid::from_raw(pid), Signal::SIGHUP) {
            Ok(()) => (RELOADS, None),
            Err(Errno::ESRCH) => ("ended", None),
            Err(e) => (FAILED, Some(e.desc())),
        },
    };
    ReloadItem { pid, outcome, why }
}

/// Returns whether a process is old enough and catches SIGHUP. None for one that has ended.
fn is_ready(pid: i32) -> Option<bool> {
    if process::age(pid)? < GROWN {
        return Some(false);
    }
    let status = Path::new("/proc").join(pid.to_string()).join("status");
    let text = files::read_text(&status, MAX_STATUS).ok()?;
    Some(catches(&text, Signal::SIGHUP))
}

/// Returns whether the process with this `status` has a handler for a signal.
fn catches(status: &str, signal: Signal) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal as u32 - 1)) != 0)
}

const API_VERSION: &str = "runmig.dev/v1";
/// A call that waits for its turn gives up after the waits of this number of calls.
const MOST_TURNS: u32 = 3;

/// The last reload.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    api_version: String,
    /// Milliseconds since 1970.
    time: u64,
    /// The instances that the processes have listed since.
    instances: BTreeSet<String>,
    /// The processes that may have missed some of them.
    #[serde(default)]
    unaware: BTreeSet<i32>,
}

/// The turn of this call, with the note of the call before it.
struct Memory {
    turn: ReloadTurn,
    last: Option<Note>,
}

impl Memory {
    /// Waits for the turn of this call.
    fn lock(config: &Config) -> Result<Memory> {
        let store = Store::open(&config.state_dir, config.lock_timeout)?;
        let turns = MOST_TURNS * config.dcgm.reload_every;
        let turn = store.reload_turn(turns.max(config.lock_timeout))?;
        // A note of another version tells nothing: the next signal comes at once.
        let note = turn.note();
        let last = note.and_then(|note| serde_json::from_slice::<Note>(&note).ok());
        let last = last.filter(|note| note.api_version == API_VERSION);
        Ok(Memory { turn, last })
    }

    /// Returns whether a process has listed these instances at the last reload.
    fn knows(&self, pid: i32, instances: &BTreeSet<String>) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|note| note.instances == *instances && !note.unaware.contains(&pid))
    }

    /// Returns the time until the next signal is due. A clock that was set back makes it due at once.
    fn time_left(&self, every: Duration) -> Option<Duration> {
        let last = self.last.as_ref()?.time;
        let since = now().checked_sub(last)?;
        let left = every.checked_sub(Duration::from_millis(since));
        left.filter(|left| !left.is_zero())
    }

    /// Notes a reload, the last act of the turn.
    fn note(self, instances: BTreeSet<String>, unaware: BTreeSet<i32>) -> Result<()> {
        let note = Note {
            api_version: API_VERSION.to_owned(),
            time: now(),
            instances,
            unaware,
        };
        let text = serde_json::to_vec(&note).context(|| "write the note of the reload")?;
        self.turn.set_note(&text)
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_caught_signals() {
        let status = "Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000004001\n";
        assert!(catches(status, Signal::SIGHUP));
        assert!(catches(status, Signal::SIGTERM));
        assert!(!catches(status, Signal::SIGINT));
        assert!(!catches("Name:\tx\n", Signal::SIGHUP));
    }
}
