//! Provisions what is on record: creates or validates each slice.

use super::levels::{LazyLevels, Levels};
use super::record::{Failed, Part, Undo};
use super::requester::Tried;
use crate::draft::footprint;
use crate::error::{Context, Error, Result};
use crate::events::EventType;
use crate::gpu::{DriverError, INSUFFICIENT_RESOURCES, Mig, Queries};
use crate::leases::Leases;
use crate::model::Profile;
use crate::reclaim;
use crate::store::{Held, InstanceState, Resource, Slice};

/// How often the driver may refuse a place that looked free before the create gives up.
const MAX_REFUSALS: usize = 8;

/// Makes what a create has on record.
pub(super) struct Maker<'a, D> {
    pub context: &'a Leases<'a>,
    pub driver: &'a D,
    pub levels: &'a LazyLevels,
}

impl<D: Mig> Maker<'_, D> {
    /// Returns the leases once every slice is there. Undoes nothing where one is not, and
    /// adds to `tried` what the next choice leaves out.
    pub(super) fn provision(
        &self,
        parts: Vec<Part>,
        tried: &mut Tried,
    ) -> std::result::Result<Vec<Held>, Failed> {
        let (mut ready, mut parts) = (Vec::new(), parts.into_iter());
        while let Some(part) = parts.next() {
            match self.part(part, tried) {
                Ok(lease) => ready.push(lease),
                Err(mut failed) => {
                    failed.undo.extend(ready.into_iter().map(Undo::Release));
                    failed.undo.extend(parts.map(Part::undo));
                    return Err(failed);
                }
            }
        }
        Ok(ready)
    }

    /// As `provision`, for one part.
    pub(super) fn part(&self, part: Part, tried: &mut Tried) -> std::result::Result<Held, Failed> {
        let context = self.context;
        let failed = |undo, error| {
            let undo = vec![undo];
            Err(Failed { undo, error })
        };
        match part {
            Part::Existing(lease) => match validate(context, self.driver, &lease) {
                Ok(lease) => {
                    let how = match lease.instance.outlives_leases() {
                        true => EventType::Adopted,
                        false => EventType::Reused,
                    };
                    context.observer.placed(&lease, how);
                    Ok(lease)
                }
                Err(e) => {
                    let id = lease.lease.id.as_str();
                    tracing::warn!(lease = id, "not handed out: {}", e.line());
                    tried.unfit.push(footprint(&lease.instance));
                    failed(Undo::GiveUp(lease), None)
                }
            },
            Part::Joined(lease) | Part::Place(lease) => match self.create(&lease) {
                Ok(lease) => Ok(lease),
                Err(Trouble::Refused(_)) if tried.refused.len() < MAX_REFUSALS => {
                    tried.refused.push(footprint(&lease.instance));
                    failed(Undo::Forget(lease), None)
                }
                Err(Trouble::Refused(e)) => failed(Undo::Forget(lease), Some(e)),
                Err(Trouble::Locked(e)) => {
                    let gpu = lease.instance.resource.gpu_uuid().clone();
                    tried.locked.push((gpu, e.reason()));
                    failed(Undo::NotBegun(lease), Some(e))
                }
                Err(Trouble::Other(e)) => failed(Undo::Release(lease), Some(e)),
            },
        }
    }

    /// Creates the instance of a lease, if it is not there. Each step is on record before the next one.
    fn create(&self, held: &Held) -> std::result::Result<Held, Trouble> {
        let context = self.context;
        let held = match &held.instance.resource {
            _ if held.instance.state == InstanceState::Ready => held.clone(),
            Resource::Mig(slice) => create_slice(context, self.driver, held, slice)?,
            // The GPU exists, and no setting of it changes. The create that put it on record may have been killed.
            Resource::Gpu(_) => context.record(held, |i| i.state = InstanceState::Ready)?,
        };
        Ok(enforce(context, self.levels, held)?)
    }
}

/// Starts what holds the container to its part of the memory, if the level has a daemon.
fn enforce(context: &Leases<'_>, levels: &LazyLevels, held: Held) -> Result<Held> {
    if held.lease.daemon().is_none() {
        return Ok(held);
    }
    let program = levels
        .get()
        .and_then(Levels::program)
        .ok_or_else(|| Error::new("the MPS control program is gone"))?;
    let started = reclaim::start(context, &held, program, 0);
    // Without its record, nobody else would find it.
    match &started {
        Ok(held) => context.observer.placed(held, EventType::Created),
        Err(_) => reclaim::remove_home(context, &held.lease.id),
    }
    started.context(|| format!("start an MPS daemon on {}", held.instance.resource))
}

fn create_slice(
    context: &Leases<'_>,
    driver: &impl Mig,
    held: &Held,
    slice: &Slice,
) -> std::result::Result<Held, Trouble> {
    let gpu = &slice.gpu_uuid;
    let why = format!("create of {}", held.lease.holder.name());
    let _lock = { context.store.lock_gpu(gpu, &why) }.map_err(Trouble::Locked)?;
    let profile = Profile {
        name: slice.profile.clone(),
        id: slice.profile_id,
        ..Profile::default()
    };
    let gi = driver
        .create_gpu_instance(gpu, &profile, slice.placement)
        .map_err(|e| match e.code() {
            Some(INSUFFICIENT_RESOURCES) => Trouble::Refused(e.into()),
            _ => e.into(),
        })?;
    let made = |ci| Slice {
        gpu_instance: Some(gi),
        compute_instance: ci,
        ..slice.clone()
    };
    context
        .record(held, |i| i.change_slice(|s| s.gpu_instance = Some(gi)))
        .map_err(|e| destroy_unrecorded(driver, &made(None), e))?;
    let ci = driver.create_compute_instance(gpu, gi)?;
    let uuid = driver.mig_uuid(gpu, gi, ci)?;
    let recorded = context.record(held, |i| {
        i.change_slice(|slice| {
            slice.compute_instance = Some(ci);
            slice.mig_uuid = Some(uuid.clone());
        });
        i.state = InstanceState::Ready;
    });
    let held = recorded.map_err(|e| destroy_unrecorded(driver, &made(Some(ci)), e))?;
    tracing::info!(lease = held.lease.id.as_str(), "made: {uuid}");
    context.observer.placed(&held, EventType::Created);
    Ok(held)
}

/// Destroys an instance at once if its record cannot be written, for instance on a full disk. No other
/// process could know that the instance is runmig's.
fn destroy_unrecorded(driver: &impl Mig, slice: &Slice, error: Error) -> Trouble {
    let undone = match reclaim::destroy(driver, slice, || Ok(())) {
        Ok(destroyed) => destroyed.map_err(Error::from),
        Err(e) => Err(e),
    };
    Trouble::Other(error.and(undone.err()))
}

enum Trouble {
    /// The driver created nothing.
    Refused(Error),
    /// Another process keeps the GPU locked. The driver was not asked.
    Locked(Error),
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(e: Error) -> Self {
        Trouble::Other(e)
    }
}

impl From<DriverError> for Trouble {
    fn from(e: DriverError) -> Self {
        Trouble::Other(e.into())
    }
}

/// Returns the lease of a slice that is unchanged and unused, with the UUID.
///
/// # Errors
/// The slice cannot be handed out, or that cannot be found out.
fn validate(context: &Leases<'_>, driver: &impl Queries, held: &Held) -> Result<Held> {
    let slice = held.instance.slice();
    let ids = slice.and_then(|s| Some((s, s.gpu_instance?, s.compute_instance?)));
    let Some((slice, gi, ci)) = ids else {
        return Err(Error::new("the lease has no instance"));
    };
    let Some(instance) = reclaim::locate(driver, slice)? else {
        return Err(Error::new("its instance is gone, or another one"));
    };
    if instance.compute_instances.iter().map(|c| c.id).ne([ci]) {
        return Err(Error::new("it has other compute instances than ours"));
    }
    let computing = driver.processes(&slice.gpu_uuid, gi, ci)?;
    if let Some(pid) = computing.first() {
        return Err(Error::new(format!("process {pid} computes on it")));
    }
    let holders = reclaim::holders(context, held.instance.slice());
    if let Some((pid, name)) = holders.seen.first() {
        return Err(Error::new(format!("process {pid} {name} has it open")));
    }
    if let Some(why) = holders.unseen {
        return Err(Error::new(format!(
            "whether anybody has it open cannot be seen: {why}"
        )));
    }
    let uuid = match &slice.mig_uuid {
        Some(uuid) => uuid.clone(),
        None => driver.mig_uuid(&slice.gpu_uuid, gi, ci)?,
    };
    // From now on the other containers of its pod may share it.
    context.record(held, |i| {
        i.change_slice(|s| s.mig_uuid = Some(uuid));
        i.state = InstanceState::Ready;
    })
}
