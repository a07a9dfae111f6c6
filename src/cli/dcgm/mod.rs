//! `migctl dcgm reload`: tells dcgm-exporter to list the MIG instances again.
//!
//! dcgm-exporter lists them at its start and after a SIGHUP, and drops a signal that comes too soon after another. So the
//! calls of `reload` take turns, and each waits until a signal is due. It looks at the instances right before the signals,
//! and notes them after: a later change is one that the note lacks.

mod exporter;
mod memory;

use super::json::{Items, ReloadItem};
use super::output::{self, Format};
use super::world;
use clap::Subcommand;
use exporter::{Exporter, Told};
use memory::Memory;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use std::collections::BTreeSet;

#[derive(Subcommand)]
pub enum Verb {
    /// Tell every dcgm-exporter of this machine to list the MIG instances again
    ///
    /// Two reloads are dcgm.reload_every apart: a call waits for its turn. dcgm-exporter has no series for 2 to 3 s after
    /// one.
    Reload {
        /// Do nothing if no MIG instance has come or gone since the last reload
        #[arg(long)]
        if_changed: bool,
    },
}

pub fn run(config: &Config, format: Format, verb: &Verb) -> Result<i32> {
    let Verb::Reload { if_changed } = verb;
    if exporter::running().is_empty() {
        return Err(none_runs());
    }
    let mut memory = Memory::lock(config)?;
    if *if_changed && memory.has(instances(config).as_ref()) {
        print(format, &[]);
        return Ok(0);
    }
    if let Some(rest) = memory.time_left(config.dcgm.reload_every) {
        std::thread::sleep(rest);
    }
    let instances = instances(config);
    let running = exporter::running();
    if running.is_empty() {
        return Err(none_runs());
    }
    let told: Vec<(&Exporter, Told)> = running.iter().map(|e| (e, e.reload())).collect();
    let all_know = told.iter().all(|(_, told)| *told == Told::Reloads);
    memory.note(instances.filter(|_| all_know))?;
    let items: Vec<ReloadItem> = told
        .iter()
        .map(|(exporter, told)| item(exporter, told))
        .collect();
    print(format, &items);
    let has_failed = told.iter().any(|(_, told)| matches!(told, Told::Failed(_)));
    Ok(i32::from(has_failed))
}

fn none_runs() -> Error {
    Error::new("cannot reload dcgm-exporter: no process of that name runs")
        .hint("start dcgm-exporter, or call migctl in the pid namespace of the host")
}

/// Returns the name of each MIG instance of the machine. None if the driver does not tell all.
fn instances(config: &Config) -> Option<BTreeSet<String>> {
    let (_, world) = world::look(config).ok()?;
    if !world.snapshot.unreadable.is_empty() {
        return None;
    }
    let names = world.snapshot.gpus.iter().flat_map(|gpu| {
        let of_gpu = gpu.instances.iter();
        of_gpu.map(|instance| format!("{}/{}", gpu.uuid.as_str(), instance.id))
    });
    // The driver gives the id of an instance again; the ledger's own are those of one instance each.
    let entries = world.entries();
    let on_record = entries.iter().map(|entry| entry.instance());
    let slices = on_record.filter(|instance| instance.resource.mig_slice().is_some());
    let ids = slices.map(|instance| instance.id.as_str().to_owned());
    Some(names.chain(ids).collect())
}

fn item(exporter: &Exporter, told: &Told) -> ReloadItem {
    let (outcome, why) = match told {
        Told::Reloads => ("reloads", None),
        Told::Starts => (
            "starts",
            Some(
                "it has not begun to wait for signals, and lists the instances at its start"
                    .to_owned(),
            ),
        ),
        Told::Ended => ("ended", None),
        Told::Failed(why) => ("failed", Some(why.clone())),
    };
    ReloadItem {
        pid: exporter.pid,
        outcome,
        why,
    }
}

fn print(format: Format, items: &[ReloadItem]) {
    match format {
        Format::Json => output::json(&Items { items }),
        // A unit calls this: no line about nothing.
        Format::Table if items.is_empty() => {}
        Format::Table => {
            let row = |item: &ReloadItem| {
                let why = item.why.clone().unwrap_or_else(|| "-".to_owned());
                vec![item.pid.to_string(), item.outcome.to_owned(), why]
            };
            let rows: Vec<Vec<String>> = items.iter().map(row).collect();
            output::table(&["DCGM-EXPORTER", "OUTCOME", "WHY"], &rows);
        }
    }
}
