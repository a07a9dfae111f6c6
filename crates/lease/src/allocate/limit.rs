//! Limits the memory of a container's share in the driver, before the first process of its image runs.

use crate::error::{Context, Error, Result, printable};
use crate::leases::Leases;
use crate::limit;
use crate::model::{LeaseId, Level};
use crate::process;
use crate::reclaim::liveness::Liveness;
use crate::store::{Enforcement, Held, Lease, LeaseState, Limit, LimitedCgroup};

impl Leases<'_> {
    /// Limits the cgroup of a container's first process to the share of its lease, and puts the outcome on record.
    ///
    /// # Errors
    /// The lease is not this container's share at the level `driver`, or the limit cannot be set and read back.
    pub fn limit_memory(&self, lease: &LeaseId, container: &str, pid: i32) -> Result<()> {
        let what = || format!("limit the GPU memory of container {}", printable(container));
        let held = held(self, lease, container).context(what)?;
        let limited = set(self, &held, pid).context(what);
        let outcome = match &limited {
            Ok(cgroup) => Limit::Set(cgroup.clone()),
            Err(e) => Limit::Failed(e.line()),
        };
        let ledger = self.store.lock("limit")?;
        let recorded = ledger.update_lease(&held.lease, |l| l.change_limit(outcome));
        match (limited, recorded) {
            (Ok(_), Ok(None)) => Err(Error::new("its lease is gone")).context(what),
            (limited, recorded) => limited.and(recorded).map(drop),
        }
    }
}

/// Returns the lease, if it is this container's and not on its way out.
fn held(context: &Leases<'_>, lease: &LeaseId, container: &str) -> Result<Held> {
    let held = context.store.get(lease)?;
    let is_its = |held: &Held| {
        held.lease.holder.name() == container && held.lease.state != LeaseState::Releasing
    };
    held.filter(is_its)
        .ok_or_else(|| Error::new(format!("lease {lease} is not this container's")))
}

fn set(context: &Leases<'_>, held: &Held, pid: i32) -> Result<LimitedCgroup> {
    let (Some(share), Some(Level::Driver)) = (held.lease.share(), held.lease.level()) else {
        let lease = &held.lease.id;
        return Err(Error::new(format!(
            "lease {lease} is not a share at the level driver"
        )));
    };
    let gpu = held.instance.resource.gpu_uuid();
    let cgroup = limit::set(&context.driver(), gpu, pid, share.memory_mib)?;
    tracing::info!(
        lease = held.lease.id.as_str(),
        container = held.lease.holder.name(),
        "the driver limits the container's memory to {held}"
    );
    Ok(cgroup)
}

/// A container's memory has no limit in the driver, although its level promises one.
#[derive(Debug)]
pub struct MissingLimit {
    /// The error of the hook, or that of a container whose hook did not run.
    pub why: Error,
    /// Whether the hook has not told its outcome. It may run yet.
    pub is_awaited: bool,
}

impl Leases<'_> {
    /// Returns why the container of a lease lacks its limit, by the record. None also where the lease is gone: a container that
    /// has ended had its hook release it.
    pub fn missing_limit(&self, held: &Held) -> Result<Option<MissingLimit>> {
        if held.lease.level() != Some(Level::Driver) {
            return Ok(None);
        }
        let now = self.store.lease_now(&held.lease)?;
        let share = now.as_ref().and_then(|now| now.share());
        let (why, is_awaited) = match share.map(|share| &share.enforcement) {
            Some(Enforcement::Driver(Some(Limit::Failed(line)))) => {
                (Error::new(line.clone()), false)
            }
            Some(Enforcement::Driver(None)) => (no_hook(&held.lease), true),
            _ => return Ok(None),
        };
        Ok(Some(MissingLimit { why, is_awaited }))
    }
}

fn no_hook(lease: &Lease) -> Error {
    let container = printable(lease.holder.name());
    Error::new(format!(
        "cannot limit the GPU memory of container {container}: the low-level runtime did not run the hook for it"
    ))
    .hint("install all programs of runmig from one version, and use a low-level runtime with createRuntime hooks")
}

impl Leases<'_> {
    /// Ends the first process of a container that runs without its limit.
    ///
    /// # Errors
    /// The process is not known, or cannot be killed.
    pub fn end_unlimited(&self, lease: &Lease) -> Result<()> {
        let container = printable(lease.holder.name());
        let what = || format!("end container {container}, which runs without its limit");
        let Some(lease) = self.store.lease_now(lease).context(what)? else {
            return Ok(());
        };
        let key = lease.container().map(|container| &container.key);
        let recorded = || key.and_then(|key| Liveness::here().recorded_init(key).ok()?);
        match lease.init.or_else(recorded) {
            Some(init) => process::kill(&init).context(what),
            None => Err(Error::new("its first process is not known").hint("delete the container"))
                .context(what),
        }
    }
}
