//! The used places of an inventory.

use super::names::{self, DeviceName};
use super::node::Use;
use runmig_lease::Inventory;
use runmig_lease::error::{Error, Result};
use runmig_lease::placement::Slot;
use runmig_lease::store::Held;
use std::collections::HashSet;

/// The used places of a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// The promised places.
    pub uses: Vec<Use>,
    /// The places of idle slices.
    pub idle: Vec<Slot>,
    /// The devices of the claims.
    pub allocated: HashSet<DeviceName>,
}

/// Returns the used places of an inventory on a node.
///
/// # Errors
/// The ledger could not be read, so nothing tells which places are taken. The node should keep its last layout.
pub fn uses(inventory: &Inventory, node: &str) -> Result<Uses> {
    if let Some(e) = &inventory.unread {
        let why = e.reason();
        return Err(Error::new(format!("cannot read the used places: {why}")));
    }
    let pool = names::pool(node);
    let claims = inventory.leases.iter().filter_map(|held| {
        let device = device(held, &pool)?;
        let slice = held.instance.slice()?;
        let slot = Slot::new(&slice.gpu_uuid, slice.profile_id, slice.placement);
        Some((slot, device, held.instance.attempt().is_some()))
    });
    let claims: Vec<(Slot, DeviceName, bool)> = claims.collect();
    // Unprepare of a quarantined slice has failed, and its claim may have ended since.
    let claim = |slot: &Slot| {
        let is_its = |(its, _, is_quarantined): &&_| its == slot && !is_quarantined;
        let (_, device, _) = claims.iter().find(is_its)?;
        Some(device.clone())
    };
    let mut uses: Vec<Use> = Vec::new();
    for slot in inventory.reserved() {
        if uses.iter().all(|used| used.slot != slot) {
            let claim = claim(&slot);
            uses.push(Use { slot, claim });
        }
    }
    Ok(Uses {
        uses,
        idle: inventory.idle(),
        allocated: claims.into_iter().map(|(_, device, _)| device).collect(),
    })
}

/// Returns the device of a claim's lease, if the node publishes it. The device of another pool is from a time at which
/// the node had another name.
fn device(held: &Held, pool: &str) -> Option<DeviceName> {
    let claim = held.lease.claim().filter(|claim| claim.pool == *pool)?;
    claim.device.parse().ok()
}
