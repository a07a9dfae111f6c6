//! Restarts the MPS daemon of a living container.

use super::liveness;
use crate::context::LeaseContext;
use crate::error::{Context, Error, Result, printable};
use crate::mps::{self, Home, Order};
use crate::process;
use crate::store::{Held, InstanceState, LeaseState, MpsDaemon};

/// The number of restarts in a row. A daemon that ends each time has a cause that a restart does not remove.
const MOST_RESTARTS: u32 = 3;

/// The state of a container's MPS daemon, as a collector finds and leaves it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The lease has no daemon that should live, or it lives.
    Well,
    /// It had ended, and lives again.
    Restarted,
    /// It has ended, and a collector without `dry_run` restarts it.
    Ended,
}

/// Restarts the daemon of a lease if it has ended. Until then new processes of the container have no limit.
pub(super) fn restart_if_ended(
    context: &LeaseContext<'_>,
    held: &Held,
    dry_run: bool,
) -> Result<Found> {
    let Some(daemon) = held.instance.resource.daemon() else {
        return Ok(Found::Well);
    };
    if held.lease.state != LeaseState::Ready || liveness::unseen(&held.lease).is_some() {
        return Ok(Found::Well);
    }
    // A restart that was killed half way leaves the instance *creating*, perhaps with a daemon without its limit.
    let is_whole = held.instance.state == InstanceState::Ready;
    if is_whole && daemon.process.is_some_and(|p| process::is_alive(&p)) {
        if !dry_run {
            mps::cut_logs(&Home::of(&context.config.state_dir, &held.instance.id))?;
        }
        if daemon.restarts > 0 && !dry_run {
            context.record(held, |i| i.change_daemon(|d| d.restarts = 0))?;
        }
        return Ok(Found::Well);
    }
    if dry_run {
        return Ok(Found::Ended);
    }
    let container = printable(held.lease.holder.name());
    if daemon.restarts >= MOST_RESTARTS {
        return Err(Error::new(format!(
            "the MPS daemon of container {container} ended again after {MOST_RESTARTS} restarts, and its new \
             processes have no memory limit"
        ))
        .hint("look at the daemon's log with the control program, then restart the container"));
    }
    let why = format!("restart of the MPS daemon of {container}");
    let _lock = context
        .store
        .lock_gpu(held.instance.resource.gpu_uuid(), &why)?;
    // Another collector may have restarted it, or a release may be at work.
    if context.store.held_now(held)?.as_ref() != Some(held) {
        return Ok(Found::Well);
    }
    restart(context, held, daemon).context(|| {
        format!(
            "restart the MPS daemon of container {container}, and its new processes have no memory limit"
        )
    })?;
    tracing::warn!(
        lease = held.lease.id.as_str(),
        container,
        "its MPS daemon had ended, and processes that started meanwhile have no memory limit; it is restarted"
    );
    Ok(Found::Restarted)
}

fn restart(context: &LeaseContext<'_>, held: &Held, daemon: &MpsDaemon) -> Result<()> {
    let config = context.config;
    let program = mps::find(config.sharing.mps_control.as_deref(), &config.driver.root)?;
    let home = Home::of(&config.state_dir, &held.instance.id);
    context.record(held, |i| i.state = InstanceState::Creating)?;
    // A server without its daemon ends by itself, but it may take a while.
    if let Some(pid) = mps::end(&home, true)? {
        return Err(Error::new(format!(
            "process {pid} of the last daemon does not end"
        )));
    }
    let order = Order {
        home: &home,
        program: &program,
        gpu: &daemon.gpu.gpu_uuid,
        limit_mib: daemon.limit_mib,
    };
    mps::start(&order, |process| {
        let change = |d: &mut MpsDaemon| {
            d.process = Some(process);
            d.restarts += 1;
        };
        context.record(held, |i| i.change_daemon(change)).map(drop)
    })?;
    context
        .record(held, |i| i.state = InstanceState::Ready)
        .map(drop)
}
