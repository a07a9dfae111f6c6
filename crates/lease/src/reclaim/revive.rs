//! Restarts the MPS daemon of a living container, and names the processes of containers that bypass MPS.

use super::daemon;
use super::finding::{Finding, Outcome};
use super::liveness::is_visible;
use crate::error::{Context, Error, Result, printable, processes};
use crate::gpu::Queries;
use crate::inventory::AroundMps;
use crate::leases::Leases;
use crate::mps::{self, Program};
use crate::store::{Entry, Held, LeaseState, MpsDaemon};
use std::time::{Duration, Instant};

/// The time after which a collector begins no further restart. The next one goes on.
const TIME: Duration = Duration::from_secs(20);

/// Restarts the daemons of containers that live on, and says so in their outcomes. Until then new processes of such
/// a container have no limit.
pub(super) fn restart_ended(context: &Leases<'_>, findings: &mut [Finding], dry_run: bool) {
    let end = Instant::now() + TIME;
    let mut program = None;
    for finding in findings {
        let (Entry::Held(held), Outcome::Kept(_)) = (&finding.entry, &finding.outcome) else {
            continue;
        };
        let (Some(daemon), true) = (held.lease.daemon(), is_visible(&held.lease)) else {
            continue;
        };
        let is_due = !dry_run && Instant::now() < end;
        let outcome = match daemon::lives(daemon) {
            true if dry_run => Ok(None),
            true => mps::cut_logs(&daemon::home(context, &held.lease.id)).map(|()| None),
            false if !is_due => Ok(Some("its MPS daemon has ended")),
            false => {
                let config = context.config;
                let configured = config.sharing.mps_control.as_deref();
                let find = || mps::find(configured, &config.driver.root).and_then(|found| found);
                let program: &Result<Program> = program.get_or_insert_with(find);
                restart(context, held, daemon, program)
            }
        };
        finding.note(outcome.map(|told| told.map(str::to_owned)));
    }
}

fn restart(
    context: &Leases<'_>,
    held: &Held,
    daemon: &MpsDaemon,
    program: &Result<Program>,
) -> Result<Option<&'static str>> {
    let container = printable(held.lease.holder.name());
    if !daemon.may_restart() {
        return Err(Error::new(format!(
            "the MPS daemon of container {container} ended again after a restart, and its new \
             processes have no memory limit"
        ))
        .hint("look at the daemon's log in the state directory, then restart the container"));
    }
    let what = || {
        format!(
            "restart the MPS daemon of container {container}, and its new processes have no memory limit"
        )
    };
    let program = program.as_ref().map_err(Error::again);
    let program = program.context(what)?;
    let why = format!("restart of the MPS daemon of {container}");
    let gpu = held.instance.resource.gpu_uuid();
    let _lock = context.store.lock_gpu(gpu, &why)?;
    // Another collector may have restarted it, or a release may be at work.
    if context.store.lease_now(&held.lease)?.as_ref() != Some(&held.lease) {
        return Ok(None);
    }
    start_again(context, held, daemon, program).context(what)?;
    tracing::warn!(
        lease = held.lease.id.as_str(),
        container,
        "its MPS daemon had ended, and processes that started meanwhile have no memory limit; it is restarted"
    );
    Ok(Some("its MPS daemon had ended and is restarted"))
}

fn start_again(
    context: &Leases<'_>,
    held: &Held,
    daemon: &MpsDaemon,
    program: &Program,
) -> Result<()> {
    let home = daemon::home(context, &held.lease.id);
    context.record_lease(held, |l| l.change_daemon(|d| d.ready = false))?;
    // A server without its daemon ends by itself, but it may take a while.
    if let Some(left) = mps::end(&home, true)? {
        return Err(Error::new(format!(
            "{left} of the last daemon does not end"
        )));
    }
    let started = daemon::start(context, held, program, daemon.restarts + 1);
    // A later collector would end a daemon that is not on record, with the work of its clients by then.
    started
        .map(drop)
        .map_err(|e| e.and(mps::end(&home, true).err()))
}

/// Looks for processes that bypass MPS in the containers of these leases, and says so in their outcomes.
pub(super) fn look_for(context: &Leases<'_>, findings: &mut [Finding], dry_run: bool) {
    let (driver, mut look) = (context.driver(), AroundMps::new());
    for finding in findings {
        let living = matches!(finding.outcome, Outcome::Kept(_) | Outcome::Failed(_));
        let Entry::Held(held) = &finding.entry else {
            continue;
        };
        if !living || held.lease.daemon().is_none() {
            continue;
        }
        let told = of_lease(context, held, &driver, &mut look, dry_run);
        finding.note(told);
    }
}

fn of_lease(
    context: &Leases<'_>,
    held: &Held,
    driver: &impl Queries,
    look: &mut AroundMps,
    dry_run: bool,
) -> Result<Option<String>> {
    // A restart in the same collection changed the record.
    let now = context.store.get(&held.lease.id)?;
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
    let told = named(&found);
    if !dry_run {
        tracing::warn!(lease = held.lease.id.as_str(), container, "{told}");
    }
    Ok(Some(told))
}

/// Says that these processes bypass MPS.
fn named(pids: &[u32]) -> String {
    let shown = processes(pids);
    match pids.len() {
        1 => format!("{shown} bypasses MPS and has no memory limit"),
        _ => format!("{shown} bypass MPS and have no memory limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_few_processes() {
        let limit = "bypass MPS and have no memory limit";
        assert_eq!(
            named(&[7]),
            "process 7 bypasses MPS and has no memory limit"
        );
        assert_eq!(named(&[7, 8, 9]), format!("processes 7, 8 and 9 {limit}"));
        let many: Vec<u32> = (1..=10).collect();
        assert_eq!(
            named(&many),
            format!("processes 1, 2, 3, 4, 5, 6, 7, 8 and 2 more {limit}")
        );
    }
}
