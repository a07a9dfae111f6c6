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
use exporter::Told;
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
        /// Tell only those that have not listed the present instances
        #[arg(long)]
        if_changed: bool,
    },
}

pub fn run(config: &Config, format: Format, verb: &Verb) -> Result<i32> {
    let Verb::Reload { if_changed } = verb;
    if exporter::running().is_empty() {
        return Err(none_runs());
    }
    let memory = Memory::lock(config)?;
    let targets = |instances: &BTreeSet<String>| -> Vec<i32> {
        let is_due = |pid: &i32| !*if_changed || !memory.knows(*pid, instances);
        exporter::running().into_iter().filter(is_due).collect()
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
    let told: Vec<(i32, Told)> = { targets(&instances).into_iter() }
        .map(|pid| (pid, exporter::reload(pid)))
        .collect();
    let still = told.iter().filter(|(_, told)| *told != Told::Reloads);
    memory.note(instances, still.map(|(pid, _)| *pid).collect())?;
    let has_failed = told.iter().any(|(_, told)| matches!(told, Told::Failed(_)));
    let items: Vec<ReloadItem> = { told.into_iter() }
        .map(|(pid, told)| item(pid, told))
        .collect();
    print(format, &items);
    Ok(i32::from(has_failed))
}

fn none_runs() -> Error {
    Error::new("cannot reload dcgm-exporter: no process of that name runs")
        .hint("start dcgm-exporter, or call migctl in the pid namespace of the host")
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

fn item(pid: i32, told: Told) -> ReloadItem {
    const STARTS: &str = "it may not wait for signals yet, and lists the instances at its start";
    let (outcome, why) = match told {
        Told::Reloads => ("reloads", None),
        Told::Starts => ("starts", Some(STARTS.to_owned())),
        Told::Ended => ("ended", None),
        Told::Failed(why) => ("failed", Some(why)),
    };
    ReloadItem { pid, outcome, why }
}

fn print(format: Format, items: &[ReloadItem]) {
    match format {
        Format::Json => output::json("ReloadList", &Items { items }),
        // A unit calls this: no line about nothing.
        Format::Table if items.is_empty() => {}
        Format::Table => {
            let row = |item: &ReloadItem| {
                let why = output::dash(item.why.clone());
                vec![item.pid.to_string(), item.outcome.to_owned(), why]
            };
            let rows: Vec<Vec<String>> = items.iter().map(row).collect();
            output::table(&["DCGM-EXPORTER", "OUTCOME", "WHY"], &rows);
        }
    }
}
