//! Names the processes of containers that bypass MPS, and ends them where the administrator wants that.

use super::finding::{Finding, Outcome};
use crate::config::RoundMps;
use crate::context::LeaseContext;
use crate::error::{self, Context, Error, Result, printable};
use crate::gpu::Queries;
use crate::inventory::AroundMps;
use crate::process::PidFd;
use crate::store::{Entry, Held, LeaseState};

/// The most processes that a remark names.
const MOST_NAMED: usize = 8;

/// The statements about one process, and about several.
const REPORTED: [&str; 2] = [
    "bypasses MPS and has no memory limit",
    "bypass MPS and have no memory limit",
];
const WOULD_KILL: [&str; 2] = [
    "bypasses MPS and would be killed",
    "bypass MPS and would be killed",
];
const SPARED: [&str; 2] = [
    "bypasses MPS and is spared, since its cgroup may be another container's",
    "bypass MPS and are spared, since their cgroups may be another container's",
];
const SPARED_IN_SLICE: [&str; 2] = [
    "seems to bypass MPS and is spared, since the driver's lists are not measured in MIG mode",
    "seem to bypass MPS and are spared, since the driver's lists are not measured in MIG mode",
];
const KILLED: [&str; 2] = [
    "bypassed MPS and was killed",
    "bypassed MPS and were killed",
];

/// Looks for processes that bypass MPS in the containers of these leases, and says so in their outcomes. With
/// `round_mps = "kill"` it ends them, and nothing else.
pub(super) fn look_for(context: &LeaseContext<'_>, findings: &mut [Finding], dry_run: bool) {
    let (driver, mut look) = (context.driver(), AroundMps::new());
    for finding in findings {
        let living = matches!(finding.outcome, Outcome::Kept(_) | Outcome::Failed(_));
        let Entry::Held(held) = &finding.entry else {
            continue;
        };
        if !living || held.instance.resource.daemon().is_none() {
            continue;
        }
        match of_lease(context, held, (&driver, &mut look), dry_run) {
            Ok(None) => {}
            Ok(Some(told)) => finding.remark(&told),
            Err(e) => finding.fail(e),
        }
    }
}

fn of_lease(
    context: &LeaseContext<'_>,
    held: &Held,
    (driver, look): (&impl Queries, &mut AroundMps),
    dry_run: bool,
) -> Result<Option<String>> {
    // A restart in the same collection changed the record.
    let now = context.store.held_now(held)?;
    let Some(held) = now.filter(|now| now.lease.state == LeaseState::Ready) else {
        return Ok(None);
    };
    let container = printable(held.lease.holder.name());
    let found = look.of(driver, &held).map_err(Error::from);
    let found =
        found.context(|| format!("list the processes without MPS of container {container}"))?;
    let found = found.unwrap_or_default();
    if found.is_empty() {
        return Ok(None);
    }
    let told = match (context.config.sharing.round_mps, dry_run) {
        (RoundMps::Report, _) => named(&found, REPORTED),
        (RoundMps::Kill, true) => named(&found, WOULD_KILL),
        (RoundMps::Kill, false) => {
            let what = || format!("kill the processes without MPS of container {container}");
            let (killed, spared) = kill(driver, &held, &found).context(what)?;
            let words = match held.instance.parent {
                Some(_) => SPARED_IN_SLICE,
                None => SPARED,
            };
            let all = [(killed, KILLED), (spared, words)].into_iter();
            let told = all.filter(|(pids, _)| !pids.is_empty());
            let told: Vec<String> = told.map(|(pids, words)| named(&pids, words)).collect();
            if told.is_empty() {
                return Ok(None);
            }
            told.join("; ")
        }
    };
    if !dry_run {
        tracing::warn!(lease = held.lease.id.as_str(), container, "{told}");
    }
    Ok(Some(told))
}

/// Kills those of a container's processes that still bypass MPS. Once a descriptor names a process, its number cannot
/// lead to another one, so the cgroup and the driver's lists are asked again with all descriptors open. Returns the
/// killed processes, and those that may be another container's. The lists of a GPU in MIG mode are not measured, so
/// the processes of a seat are spared.
fn kill(driver: &impl Queries, held: &Held, found: &[u32]) -> Result<(Vec<u32>, Vec<u32>)> {
    let mut open = Vec::new();
    for pid in found {
        match i32::try_from(*pid).map(PidFd::open) {
            Ok(Ok(process)) => open.push((*pid, process)),
            Ok(Err(e)) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Ok(Err(e)) => return Err(e).context(|| format!("open process {pid}")),
            Err(_) => {}
        }
    }
    let mut look = AroundMps::new();
    let again = look.of(driver, held)?.unwrap_or_default();
    let (mut killed, mut spared, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (pid, process) in open {
        let is_certain = look.is_certain(pid, held) && held.instance.parent.is_none();
        // The answers are about this process if it has not ended since.
        if !again.contains(&pid) || process.has_ended() {
            continue;
        }
        if is_certain {
            match process.kill().context(|| format!("kill process {pid}")) {
                Ok(()) => killed.push(pid),
                Err(e) => failed.push(Err(e)),
            }
        } else {
            spared.push(pid);
        }
    }
    // A failure does not hide the processes that are dead.
    if !failed.is_empty() && !killed.is_empty() {
        tracing::warn!("{}", named(&killed, KILLED));
    }
    error::all(failed).map(|()| (killed, spared))
}

/// Names processes before a statement about one or several of them.
fn named(pids: &[u32], [one, several]: [&str; 2]) -> String {
    let shown: Vec<String> = { pids.iter() }
        .take(MOST_NAMED)
        .map(u32::to_string)
        .collect();
    match shown.as_slice() {
        [pid] => format!("process {pid} {one}"),
        all if pids.len() > MOST_NAMED => {
            let more = pids.len() - MOST_NAMED;
            format!("processes {} and {more} more {several}", all.join(", "))
        }
        [all @ .., last] => format!("processes {} and {last} {several}", all.join(", ")),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_few_processes() {
        assert_eq!(named(&[7], KILLED), "process 7 bypassed MPS and was killed");
        assert_eq!(
            named(&[7, 8, 9], REPORTED),
            "processes 7, 8 and 9 bypass MPS and have no memory limit"
        );
        let many: Vec<u32> = (1..=10).collect();
        assert_eq!(
            named(&many, WOULD_KILL),
            "processes 1, 2, 3, 4, 5, 6, 7, 8 and 2 more bypass MPS and would be killed"
        );
    }
}
