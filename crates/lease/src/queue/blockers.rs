//! The slots that earlier requests in the queue reserve.

use crate::model::{GpuUuid, Snapshot};
use crate::placement::Reservation;
use crate::store::Waiting;
use std::collections::BTreeSet;

/// Returns the profiles that earlier requests could use, by GPU. An unreadable ticket counts as wanting
/// every place.
pub(crate) fn reservations(earlier: &[Waiting], snapshot: &Snapshot) -> Vec<Reservation> {
    let mut all = BTreeSet::new();
    for waiting in earlier {
        match &waiting.waiter {
            Some(waiter) => {
                for (gpu, profiles) in &waiter.could_use {
                    all.extend(profiles.iter().map(|id| (gpu, *id)));
                }
            }
            None => {
                for gpu in &snapshot.gpus {
                    all.extend(gpu.profiles.iter().map(|p| (&gpu.uuid, p.id)));
                }
            }
        }
    }
    let reservation = |(gpu, profile_id): (&GpuUuid, u32)| Reservation {
        gpu: gpu.clone(),
        profile_id,
    };
    all.into_iter().map(reservation).collect()
}

/// Returns the GPUs that earlier requests for whole GPUs could use. An unreadable ticket counts as wanting
/// every GPU.
pub(crate) fn reserved_gpus(earlier: &[Waiting], snapshot: &Snapshot) -> BTreeSet<GpuUuid> {
    let mut all = BTreeSet::new();
    for waiting in earlier {
        match &waiting.waiter {
            Some(waiter) => {
                let whole = waiter.could_use.iter().filter(|(_, p)| p.is_empty());
                all.extend(whole.map(|(gpu, _)| gpu.clone()));
            }
            None => all.extend(snapshot.gpus.iter().map(|gpu| gpu.uuid.clone())),
        }
    }
    all
}
