//! Replaces a damaged ledger, for an operator: by the generation before, the accounts of living containers, and the driver.

use super::finding::{Finding, Outcome};
use super::lost_leases;
use crate::draft::footprint;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::leases::Leases;
use crate::model::{Gpu, GpuInstance, LeaseId};
use crate::store::{Entry, Held, Instance};
use std::sync::Arc;

/// A repair.
#[derive(Debug)]
pub struct Repair {
    /// Why the ledger was damaged.
    pub why: Error,
    /// The leases of the new ledger, each with where it was found.
    pub leases: Vec<Finding>,
    /// The leases whose accounts tell nothing, with the reason.
    pub untold: Vec<(LeaseId, Error)>,
    /// The GPU instances that no record names, with their GPUs.
    pub without_owner: Vec<(Gpu, GpuInstance)>,
    /// The GPUs whose instances could not be seen, with the reason.
    pub unseen: Vec<(u32, String)>,
}

impl Leases<'_> {
    /// Replaces a damaged ledger. Destroys nothing. Returns none where the ledger is whole.
    ///
    /// # Errors
    /// The driver does not answer, or the ledger cannot be written. It is as before then.
    pub fn repair(&self) -> Result<Option<Repair>> {
        let why = "repair";
        // No create chooses a place meanwhile, by a ledger that lacks some.
        let _plan = self.store.lock_plan(why)?;
        let snapshot = self.driver().snapshot()?;
        let ledger = self.store.lock(why)?;
        let repaired = ledger.replace_damaged(|state, why| {
            state.queue.sweep(&self.store);
            let mut leases: Vec<Finding> = { state.all_held() }
                .map(|held| finding(held, "in the generation before"))
                .collect();
            let living = lost_leases::living(self, &state.leases);
            for held in living.leases {
                if state.instance(&held.instance.id).is_none() {
                    state.put_instance(held.instance.clone())?;
                }
                state.put_lease(held.lease.clone())?;
                leases.push(finding(held, "by its account"));
            }
            let is_owned = |gpu: &Gpu, there: &GpuInstance| {
                let is_it = |instance: &Arc<Instance>| {
                    let slot = footprint(instance);
                    slot.gpu == gpu.uuid && slot.placement == there.placement
                };
                state.instances.iter().any(is_it)
            };
            let mut without_owner = Vec::new();
            for gpu in &snapshot.gpus {
                let there = gpu.instances.iter().filter(|i| !is_owned(gpu, i));
                without_owner.extend(there.map(|i| (gpu.clone(), i.clone())));
            }
            Ok(Repair {
                why,
                leases,
                untold: living.untold,
                without_owner,
                unseen: snapshot.unreadable.clone(),
            })
        })?;
        if let Some(repair) = &repaired {
            let dir = self.store.dir();
            self.observer.repaired(dir, &repair.why);
        }
        Ok(repaired)
    }
}

fn finding(held: Held, told: &str) -> Finding {
    Finding {
        entry: Entry::Held(held),
        outcome: Outcome::Kept(told.to_owned()),
    }
}
