//! Making what a lease on record says.

use super::reuse::slot_of;
use super::{Leases, Patience};
use crate::error::{Error, Result};
use crate::gpu::{INSUFFICIENT_RESOURCES, Mig};
use crate::placement::Slot;
use crate::store::Lease;

impl Leases<'_> {
    /// Makes what the lease says. A failure takes it back.
    pub(super) fn make(
        &self,
        driver: &impl Mig,
        lease: Lease,
    ) -> std::result::Result<Lease, Failed> {
        match self.try_make(driver, &lease) {
            Ok(lease) => Ok(lease),
            Err(Trouble::Refused(error)) => {
                // The driver made nothing, so there is nothing to destroy: what lies at that place
                // now is somebody else's.
                let forgotten = self
                    .store
                    .lock("refused create")
                    .and_then(|l| l.remove(&lease));
                Err(Failed {
                    error: error.and(forgotten.err()),
                    place: Some(slot_of(&lease.slice)),
                })
            }
            Err(Trouble::Other(error)) => {
                let released = self.release(&lease.id, Patience::default());
                Err(Failed {
                    error: error.and(released.err()),
                    place: None,
                })
            }
        }
    }

    fn try_make(&self, driver: &impl Mig, lease: &Lease) -> std::result::Result<Lease, Trouble> {
        let slice = &lease.slice;
        let other = |e: crate::gpu::DriverError| Trouble::Other(e.into());
        let _lock = self.store.lock_gpu(
            &slice.gpu_uuid,
            &format!("create of {}", lease.holder.key.id),
        )?;
        let profile = crate::model::Profile {
            name: slice.profile.clone(),
            id: slice.profile_id,
            ..crate::model::Profile::default()
        };
        let gi = driver
            .create_gpu_instance(&slice.gpu_uuid, &profile, slice.placement)
            .map_err(|e| match e.code() {
                Some(INSUFFICIENT_RESOURCES) => Trouble::Refused(e.into()),
                _ => other(e),
            })?;
        // What cannot be put on record (a full disk, a record that somebody took away) goes at once:
        // nobody else could know that it is ours.
        let unrecorded = |error: Error, ci: Option<u32>| {
            let undone = ci
                .map_or(Ok(()), |ci| {
                    driver.destroy_compute_instance(&slice.gpu_uuid, gi, ci)
                })
                .and_then(|()| driver.destroy_gpu_instance(&slice.gpu_uuid, gi));
            Trouble::Other(error.and(undone.err().map(Error::from)))
        };
        self.record(lease, |l| l.slice.gpu_instance = Some(gi))
            .map_err(|e| unrecorded(e, None))?;
        let ci = driver
            .create_compute_instance(&slice.gpu_uuid, gi)
            .map_err(other)?;
        let uuid = driver.mig_uuid(&slice.gpu_uuid, gi, ci).map_err(other)?;
        let lease = self
            .record(lease, |l| {
                l.slice.compute_instance = Some(ci);
                l.slice.mig_uuid = Some(uuid);
            })
            .map_err(|e| unrecorded(e, Some(ci)))?;
        tracing::info!(
            lease = lease.id,
            "made: {}",
            lease.slice.mig_uuid.as_deref().unwrap_or_default()
        );
        Ok(lease)
    }

    pub(super) fn record(&self, lease: &Lease, change: impl FnOnce(&mut Lease)) -> Result<Lease> {
        self.store
            .lock("create")?
            .update(&lease.id, change)?
            .ok_or_else(|| {
                Error::new(format!(
                    "the lease of container {} was taken away",
                    lease.holder.key.id
                ))
            })
    }
}

pub(super) struct Failed {
    pub error: Error,
    /// A place that the driver would not give: another may do.
    pub place: Option<Slot>,
}

enum Trouble {
    Refused(Error),
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(e: Error) -> Self {
        Trouble::Other(e)
    }
}
