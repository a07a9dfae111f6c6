//! Shares as they are now, as `migctl list` shows them: their levels, memory, gaps in their limits, and MPS daemons.

use super::list::holder_name;
use super::{driver, output};
use runmig_lease::config::Config;
use runmig_lease::error::{Error, printable, processes};
use runmig_lease::model::Level;
use runmig_lease::store::{Entry, Held, Lease, LeaseState, MpsDaemon};
use runmig_lease::{DaemonView, ObservedShare, process, unseen};

/// Observes the shares among entries, with an empty observation for each of the others. Without shares it opens no
/// driver and runs no control program.
pub fn observe(config: &Config, entries: &[Entry]) -> Vec<ObservedShare> {
    let shares: Vec<&Held> = entries.iter().filter_map(share).collect();
    if shares.is_empty() {
        return vec![ObservedShare::default(); entries.len()];
    }
    let driver = driver::ask(config);
    let mut seen = runmig_lease::observe(config, &driver, &shares).into_iter();
    if let Some(e) = driver.silence() {
        output::eprint(&Error::from(e).line());
    }
    let each = { entries.iter() }.map(|entry| share(entry).and_then(|_| seen.next()));
    each.map(Option::unwrap_or_default).collect()
}

/// Returns the lease of an entry that is a share.
fn share(entry: &Entry) -> Option<&Held> {
    match entry {
        Entry::Held(held) if held.lease.share().is_some() => Some(held),
        _ => None,
    }
}

/// Names the containers whose limits have gaps, and those of which that is not known.
pub fn tell(entries: &[Entry], seen: &[ObservedShare]) {
    let mut unknown: Vec<(&(&'static str, String), Vec<String>)> = Vec::new();
    for (entry, seen) in entries.iter().zip(seen) {
        let Some(Held { lease, .. }) = share(entry) else {
            continue;
        };
        let name = holder_name(lease);
        tell_changed(lease, &name, seen);
        if let Some(pids) = seen.around.as_deref().filter(|pids| !pids.is_empty()) {
            output::eprint(&format!(
                "the MPS daemon of container {name} does not limit {}; hint: end what bypasses MPS",
                processes(pids)
            ));
        }
        for failed in &seen.unknown {
            match unknown.iter_mut().find(|(known, _)| *known == failed) {
                Some((_, names)) => names.push(name.clone()),
                None => unknown.push((failed, vec![name.clone()])),
            }
        }
    }
    for ((what, why), names) in unknown {
        let names = match names.as_slice() {
            [name] => format!("container {name}"),
            names => format!("containers {}", names.join(", ")),
        };
        let why = printable(why);
        output::eprint(&format!(
            "cannot {what} of {names}: {why}; hint: run migctl gc to try again"
        ));
    }
}

fn tell_changed(lease: &Lease, name: &str, seen: &ObservedShare) {
    let Some(limit) = &seen.limit_changed else {
        return;
    };
    let hint = match limit.is_raised() {
        true => "migctl gc sets it back; run the container as another user than root",
        false => "restart the container, since migctl gc sets back raised limits alone",
    };
    let share = lease.share().map_or(0, |share| share.memory_mib);
    output::eprint(&format!(
        "the memory limit of container {name} was changed to {limit}, and its share has {share}Mi; hint: {hint}"
    ));
}

/// Returns the daemon of an entry, if it should have one.
pub fn daemon_of(entry: &Entry) -> Option<DaemonView> {
    let lease = entry.lease()?;
    let daemon = lease.daemon()?;
    let visible = daemon.process.filter(|_| unseen(lease).is_none());
    Some(DaemonView {
        pid: daemon.process.map(|p| p.pid),
        alive: visible.map(|p| process::is_alive(&p)),
        restarts: Some(daemon.restarts),
    })
}

/// Says whether the container of an entry goes on without its daemon.
pub fn lost_daemon(entry: &Entry) -> bool {
    let lease = entry.lease().filter(|l| l.state == LeaseState::Ready);
    lease.and_then(Lease::daemon).is_some_and(|daemon| {
        !daemon.ready || daemon_of(entry).is_some_and(|daemon| daemon.alive == Some(false))
    })
}

/// Names each container whose daemon has ended.
pub fn tell_lost_daemons(entries: &[Entry]) {
    let leases = entries.iter().filter(|e| lost_daemon(e));
    for lease in leases.filter_map(Entry::lease) {
        let hint = match lease.daemon().is_some_and(MpsDaemon::may_restart) {
            true => "run migctl gc to restart it",
            false => "it ended again after a restart: restart the container",
        };
        output::eprint(&format!(
            "the MPS daemon of container {} has ended, so its new processes have no memory limit; hint: {hint}",
            holder_name(lease)
        ));
    }
}

const LEVELS: [Level; 3] = [Level::Driver, Level::Mps, Level::None];

/// Returns the part of `--help` that lists the levels.
pub fn levels_help() -> String {
    let line = |level: Level| format!("  {:<6}  {}", level.name(), level.promise());
    let lines = LEVELS.map(line).join("\n");
    format!("Levels of shares (sharing.enforcement), each with its promise:\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn help_and_docs_have_same_promises() {
        let docs = include_str!("../../docs/sharing.md");
        for level in LEVELS {
            let row = format!("| `{level}` | {} |", level.promise());
            assert!(docs.contains(&row), "docs/sharing.md lacks {row}");
            for verb in ["list", "explain"] {
                let mut command = crate::cli::Arguments::command();
                // Options of all verbs reach each of them.
                command.build();
                let verb = command.find_subcommand_mut(verb).unwrap();
                let help = verb.render_long_help().to_string();
                assert!(help.contains(level.promise()), "{help}");
            }
        }
    }
}
