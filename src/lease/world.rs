//! What the driver has and what the ledger and the queue say of it, at one moment and without a lock:
//! for those who look and decide nothing.

use super::Leases;
use super::reuse::slot_of;
use super::view::reserved;
use crate::config::Config;
use crate::error::{Error, Result, printable};
use crate::gpu::Inventory;
use crate::model::{Gpu, GpuInstance, MigMode, Placement, Snapshot};
use crate::placement::{Movable, Occupancy, Slot};
use crate::store::{Claim, Damaged, Lease, State, Tie, Waiting};

#[derive(Debug, Default)]
pub struct World {
    pub snapshot: Snapshot,
    /// Of this boot.
    pub leases: Vec<Lease>,
    damaged: Vec<Claim>,
    /// Those who wait for room, in their order.
    pub waiting: Vec<Waiting>,
    /// Idle slices whose time is over, or that are not what they were, by lease: the next create destroys
    /// them before it looks for room.
    over: Vec<String>,
    /// Why the ledger could not be read, or a part of it.
    pub unread: Vec<Error>,
}

impl World {
    /// Where the ledger is missing or cannot be read, what the driver has.
    pub fn look(config: &Config, driver: &impl Inventory) -> Result<World> {
        let mut world = World::without_ledger(driver)?;
        let ledger = Leases::existing(config);
        if let Err(e) = ledger.and_then(|l| l.map_or(Ok(()), |l| world.add_ledger(&l))) {
            world.unread.push(e);
        }
        Ok(world)
    }

    pub(super) fn of(leases: &Leases<'_>, driver: &impl Inventory) -> Result<World> {
        let mut world = World::without_ledger(driver)?;
        world.add_ledger(leases)?;
        Ok(world)
    }

    fn without_ledger(driver: &impl Inventory) -> Result<World> {
        Ok(World {
            snapshot: driver.snapshot()?,
            ..World::default()
        })
    }

    fn add_ledger(&mut self, ledger: &Leases<'_>) -> Result<()> {
        let (mut leases, damaged) = ledger.store.list()?;
        self.waiting = ledger.store.waiting()?;
        leases.retain(|l| l.boot_id == ledger.boot_id);
        for Damaged { file, why, claim } in damaged {
            let file = printable(&file.to_string_lossy());
            let unread = Error::new(format!("lease {file} cannot be read")).caused_by(why);
            self.unread.push(unread);
            self.damaged.extend(claim);
        }
        self.damaged.retain(|c| c.boot_id == ledger.boot_id);
        let idle = leases.iter().filter(|l| l.idle_since.is_some());
        let over = idle.filter(|l| !ledger.is_as_it_was(&self.snapshot, &leases, l));
        self.over = over.map(|l| l.id.clone()).collect();
        self.leases = leases;
        Ok(())
    }

    /// The machine as it would be with MIG on everywhere: each GPU whose MIG mode is off offers its
    /// profiles. None where that changes nothing; a GPU that does not tell its profiles stays off.
    pub fn with_mig_on(&self, driver: &impl Inventory) -> Option<World> {
        let mut snapshot = self.snapshot.clone();
        let off = |gpu: &&mut Gpu| gpu.mig == MigMode::Disabled;
        let mut changed = false;
        for gpu in snapshot.gpus.iter_mut().filter(off) {
            let offered = driver.offered_profiles(&gpu.uuid).unwrap_or_default();
            if !offered.is_empty() {
                gpu.mig = MigMode::Enabled;
                gpu.mig_pending = None;
                gpu.profiles = offered;
                changed = true;
            }
        }
        changed.then(|| World {
            snapshot,
            leases: self.leases.clone(),
            damaged: self.damaged.clone(),
            waiting: self.waiting.clone(),
            over: self.over.clone(),
            unread: Vec::new(),
        })
    }

    /// Everything that has a place for now.
    pub fn reserved(&self) -> Vec<Slot> {
        let held = self.leases.iter().filter(|l| l.idle_since.is_none());
        let held = held.map(|l| slot_of(&l.slice));
        held.chain(self.damaged.iter().map(reserved)).collect()
    }

    /// Kept for the next.
    pub fn idle(&self) -> Vec<Slot> {
        let idle = self.leases.iter().filter(|l| l.idle_since.is_some());
        idle.map(|l| slot_of(&l.slice)).collect()
    }

    /// What goes one day: all but what an administrator made.
    pub(super) fn ours(&self) -> Vec<Slot> {
        let ours = self
            .leases
            .iter()
            .filter(|l| !l.adopted)
            .map(|l| slot_of(&l.slice));
        let damaged = self.damaged.iter().filter(|c| c.tie != Tie::Adopted);
        ours.chain(damaged.map(reserved)).collect()
    }

    /// Not free and nobody's: it could not be given back, or cannot be read.
    pub(super) fn quarantined(&self) -> Vec<Slot> {
        let quarantined = self.leases.iter().filter(|l| l.is_quarantined());
        let quarantined = quarantined.map(|l| slot_of(&l.slice));
        let damaged = self.damaged.iter().map(reserved);
        quarantined.chain(damaged).collect()
    }

    /// Those that can be handed out.
    pub(super) fn idle_leases(&self) -> Vec<Lease> {
        let idle = self.leases.iter().filter(|l| l.idle_since.is_some());
        idle.filter(|l| !self.over.contains(&l.id))
            .cloned()
            .collect()
    }

    /// What the driver has once a create has destroyed what is over.
    pub(super) fn without_what_is_over(&self) -> Snapshot {
        let mut snapshot = self.snapshot.clone();
        let over = self.leases.iter().filter(|l| self.over.contains(&l.id));
        for slice in over.map(|l| &l.slice) {
            let is_it = |i: &GpuInstance| {
                (i.profile_id, i.placement) == (slice.profile_id, slice.placement)
            };
            let gpus = snapshot.gpus.iter_mut();
            { gpus }
                .filter(|gpu| gpu.uuid == slice.gpu_uuid)
                .for_each(|gpu| gpu.instances.retain(|i| !is_it(i)));
        }
        snapshot
    }

    /// Slices that would lie elsewhere after a restart, with those who have them. An instance that an
    /// administrator made stays where it is; and a container with several slices has all of them made
    /// anew, which no plan foresees. What rules say of them is not asked here.
    pub fn movable(&self) -> (Vec<Movable>, Vec<Vec<&Lease>>) {
        let (mut all, mut whose): (Vec<Movable>, Vec<Vec<&Lease>>) = Default::default();
        let is_one_of_several = |l: &Lease| {
            let mut others = self.leases.iter().filter(|o| o.id != l.id);
            others.any(|o| o.holder.key == l.holder.key && o.state != State::Releasing)
        };
        let moves = |l: &&Lease| l.state != State::Releasing && !l.adopted && !is_one_of_several(l);
        for lease in self.leases.iter().filter(moves) {
            let place = slot_of(&lease.slice);
            match all.iter().position(|m| m.place == place) {
                Some(at) => {
                    all[at].containers += 1;
                    whose[at].push(lease);
                }
                None => {
                    all.push(Movable {
                        place,
                        containers: 1,
                        excluded: Vec::new(),
                    });
                    whose.push(vec![lease]);
                }
            }
        }
        (all, whose)
    }

    /// Those who have what lies there.
    pub fn holders(&self, gpu: &Gpu, at: Placement) -> Vec<&Lease> {
        let here = |l: &&Lease| l.slice.gpu_uuid == gpu.uuid && l.slice.placement == at;
        self.leases.iter().filter(here).collect()
    }

    pub fn is_damaged(&self, gpu: &Gpu, at: Placement) -> bool {
        let mut claims = self.damaged.iter();
        claims.any(|c| c.gpu_uuid == gpu.uuid && c.placement == at)
    }

    /// All that lies on a GPU, or is promised.
    pub fn room<'g>(&self, gpu: &'g Gpu) -> Occupancy<'g> {
        Occupancy::new(gpu, &self.reserved(), &self.idle())
    }
}
