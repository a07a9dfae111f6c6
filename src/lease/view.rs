//! The world as a create sees it that chooses a place: under the plan's lock, so that nobody else
//! chooses meanwhile.

use super::Leases;
use crate::error::{Result, printable};
use crate::gpu::Inventory;
use crate::model::Snapshot;
use crate::placement::Slot;
use crate::store::{Claim, Damaged, Lease, Tie};

pub(super) struct View {
    pub snapshot: Snapshot,
    pub leases: Vec<Lease>,
    /// What the ledger has promised.
    pub taken: Vec<Slot>,
    /// What goes one day, for those who wait: all but what an administrator made.
    pub ours: Vec<Slot>,
}

impl Leases<'_> {
    /// `is_first`: nobody came before, so that what is ours does not matter.
    pub(super) fn view(&self, driver: &impl Inventory, is_first: bool) -> Result<View> {
        // Also what is given back while the driver is asked was ours.
        let (before, unread) = match is_first {
            true => Default::default(),
            false => self.store.list()?,
        };
        let snapshot = driver.snapshot()?;
        let (leases, damaged) = self.store.list()?;
        for d in &damaged {
            let file = printable(&d.file.to_string_lossy());
            tracing::warn!("{file} cannot be read: {}", d.why.line());
        }
        let before = self.claims(&snapshot, &before, unread);
        let claims = self.claims(&snapshot, &leases, damaged);
        let ours = before.iter().chain(&claims);
        Ok(View {
            ours: { ours.filter(|c| c.tie != Tie::Adopted) }
                .map(reserved)
                .collect(),
            taken: claims.iter().map(reserved).collect(),
            snapshot,
            leases,
        })
    }

    /// What the ledger has promised, by the names of its records where they cannot be read.
    fn claims(&self, snapshot: &Snapshot, leases: &[Lease], damaged: Vec<Damaged>) -> Vec<Claim> {
        let known = |uuid: &str| snapshot.gpus.iter().any(|g| g.uuid == uuid);
        let claims = leases.iter().map(Claim::of);
        claims
            .chain(damaged.into_iter().filter_map(|d| d.claim))
            .filter(|c| c.boot_id == self.boot_id && known(&c.gpu_uuid))
            .collect()
    }
}

pub(super) fn reserved(claim: &Claim) -> Slot {
    Slot {
        gpu: claim.gpu_uuid.clone(),
        profile_id: claim.profile_id,
        placement: claim.placement,
    }
}
