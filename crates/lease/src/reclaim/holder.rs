//! The three functions of a kind of holder. A new kind is a new arm in each.

use super::liveness;
use crate::error::Result;
use crate::leases::Leases;
use crate::store::{Claim, Holder, Lease, LeaseState};

impl Leases<'_> {
    /// Says what shows that the holder of a lease still exists. What cannot be found out counts as such a sign.
    pub fn sign_of_life(&self, lease: &Lease) -> Option<String> {
        match &lease.holder {
            Holder::Container(_) => liveness::sign_of_life(&self.store, lease),
            Holder::Claim(claim) => Some(claim_lives(claim)),
        }
    }
}

/// Returns the reason for which a collector may release a lease that is not *releasing*, or else the reason
/// for which it stays.
pub(super) fn withdrawal(
    context: &Leases<'_>,
    lease: &Lease,
) -> std::result::Result<String, String> {
    match &lease.holder {
        Holder::Container(_) => match context.sign_of_life(lease) {
            Some(life) => Err(life),
            None if lease.state == LeaseState::Pending => {
                Ok("its create died before the container was there".to_owned())
            }
            None => Ok("its container is gone".to_owned()),
        },
        Holder::Claim(claim) => Err(claim_lives(claim)),
    }
}

/// Does what the holder needs after its lease. For a container, it puts the original `config.json` back.
pub(super) fn after_release(context: &Leases<'_>, lease: &Lease) -> Result<()> {
    match &lease.holder {
        Holder::Container(container) => {
            context.store.remove_account(&lease.id);
            context.restore(&container.bundle, &lease.id)
        }
        // The driver of the claim removes the CDI file.
        Holder::Claim(_) => Ok(()),
    }
}

/// Returns the reason for which a claim keeps its lease, whatever its pods and operations do.
fn claim_lives(claim: &Claim) -> String {
    format!("only Kubernetes withdraws {claim}")
}
