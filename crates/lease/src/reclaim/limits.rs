//! Sets back memory limits that others raised: those of running MPS servers, and those of cgroups in the driver.

use super::daemon;
use super::finding::{Finding, Outcome};
use super::liveness::is_visible;
use crate::error::{Context, Error, Result, printable};
use crate::gpu::Session;
use crate::leases::Leases;
use crate::limit;
use crate::model::{ChangedLimit, Level};
use crate::mps::{self, Home, Patience, Talks};
use crate::process;
use crate::store::{Entry, Held, InstanceState};
use std::time::Duration;

/// The time for daemons that do not answer.
const PATIENCE: Patience = Patience {
    each: Duration::from_secs(2),
    all: Duration::from_secs(20),
};

/// Sets raised limits of living containers back, and says so in their outcomes.
pub(super) fn set_back_raised(context: &Leases<'_>, findings: &mut [Finding], dry_run: bool) {
    let (mut talks, driver) = (None, context.driver());
    for finding in findings {
        let (Entry::Held(held), Outcome::Kept(_)) = (&finding.entry, &finding.outcome) else {
            continue;
        };
        let outcome = if has_daemon(held) {
            let talks: &Result<Talks> = talks.get_or_insert_with(|| begin(context));
            in_server(context, held, talks, dry_run)
        } else if held.lease.level() == Some(Level::Driver) && is_ready(held) {
            in_driver(context, &driver, held, dry_run)
        } else {
            continue;
        };
        finding.note(outcome);
    }
}

fn begin(context: &Leases<'_>) -> Result<Talks> {
    let configured = context.config.sharing.mps_control.as_deref();
    let program = mps::place(configured, &context.config.driver.root)?;
    Ok(Talks::new(&program, PATIENCE))
}

/// Returns whether the container of a lease lives with a daemon that may have a server.
fn has_daemon(held: &Held) -> bool {
    held.lease.daemon().is_some_and(daemon::lives) && is_ready(held)
}

fn is_ready(held: &Held) -> bool {
    held.instance.state == InstanceState::Ready && is_visible(&held.lease)
}

fn what(verb: &str, held: &Held) -> String {
    let container = printable(held.lease.holder.name());
    format!("{verb} the memory limit of container {container}")
}

/// Sets a raised limit of a cgroup in the driver back, or says that it would.
fn in_driver(
    context: &Leases<'_>,
    driver: &Session<'_>,
    held: &Held,
    dry_run: bool,
) -> Result<Option<String>> {
    // The collection may have taken a while.
    let Some(held) = context.store.get(&held.lease.id)?.filter(is_ready) else {
        return Ok(None);
    };
    let found = limit::changed(driver, &held).context(|| what("read", &held))?;
    let Some(found) = found.filter(ChangedLimit::is_raised) else {
        return Ok(None);
    };
    if dry_run {
        return Ok(Some(would_be_set_back(found)));
    }
    match limit::set_back(driver, &held) {
        Ok(()) => Ok(Some(is_set_back(&held, &found.to_string()))),
        Err(_) if held.lease.init.is_none_or(|init| !process::is_alive(&init)) => Ok(None),
        Err(e) => Err(e).context(|| what("set back", &held)),
    }
}

/// Sets a raised limit of an MPS server back, or says that it would.
fn in_server(
    context: &Leases<'_>,
    held: &Held,
    talks: &Result<Talks>,
    dry_run: bool,
) -> Result<Option<String>> {
    if dry_run {
        let found = talk(context, held, talks, "read", Talks::changed)?.flatten();
        let raised = found.filter(ChangedLimit::is_raised);
        return Ok(raised.map(would_be_set_back));
    }
    let found = talk(context, held, talks, "set back", Talks::set_back)?.flatten();
    Ok(found.map(|found| is_set_back(held, &found)))
}

fn would_be_set_back(limit: ChangedLimit) -> String {
    format!("its memory limit was changed to {limit}, and would be set back to its share")
}

/// Returns the words for a limit that is set back, which are in the log as well.
fn is_set_back(held: &Held, found: &str) -> String {
    let told = format!("its memory limit was changed to {found}, and is set back to its share");
    tracing::warn!(
        lease = held.lease.id.as_str(),
        container = printable(held.lease.holder.name()),
        "{told}; processes that started meanwhile keep what they have"
    );
    told
}

/// Talks with the daemon of a lease. None if the lease or the daemon ended meanwhile.
fn talk<T>(
    context: &Leases<'_>,
    held: &Held,
    talks: &Result<Talks>,
    verb: &str,
    act: impl FnOnce(&Talks, &Home, u64) -> Result<T>,
) -> Result<Option<T>> {
    let Some(share) = held.lease.share() else {
        return Ok(None);
    };
    let what = || what(verb, held);
    let talks = talks.as_ref().map_err(Error::again);
    let talks = talks.context(what)?;
    let home = daemon::home(context, &held.lease.id);
    match act(talks, &home, share.memory_mib) {
        Ok(answer) => Ok(Some(answer)),
        // A release or another collector's restart may have ended the daemon.
        Err(_) if is_over(context, held) => Ok(None),
        Err(e) => Err(e)
            .context(what)
            .map_err(|e| e.hint("restart the container if its MPS daemon does not answer again")),
    }
}

fn is_over(context: &Leases<'_>, held: &Held) -> bool {
    let now = context.store.lease_now(&held.lease);
    matches!(now, Ok(now) if now.as_ref() != Some(&held.lease)) || !has_daemon(held)
}
