//! The used places of an inventory.

use super::names::DeviceName;
use super::node::{Use, User};
use runmig_lease::Inventory;
use runmig_lease::error::{Error, Result};
use runmig_lease::placement::Slot;
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

/// Returns the used places of an inventory.
///
/// # Errors
/// The ledger could not be read, so nothing tells which places are taken. The node should keep its last layout.
pub fn uses(inventory: &Inventory) -> Result<Uses> {
    if inventory.is_blind() {
        let why = inventory
            .unread
            .last()
            .map(Error::reason)
            .unwrap_or_default();
        return Err(Error::new(format!(
            "the used places cannot be found out: {why}"
        )));
    }
    let uses = inventory.reserved().into_iter().map(|slot| Use {
        slot,
        user: User::Other,
    });
    Ok(Uses {
        uses: uses.collect(),
        idle: inventory.idle(),
        allocated: HashSet::new(),
    })
}
