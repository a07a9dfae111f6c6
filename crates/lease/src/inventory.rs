//! Driver, ledger and queue at one moment. Creates, `list`, `gpus`, `explain` and `defrag` read the
//! machine through this file alone.

use super::bundles::NoBundles;
use super::context::LeaseContext;
use super::draft::slot_of;
use super::idle;
use crate::config::Config;
use crate::error::{Error, Result, printable};
use crate::gpu::Queries;
use crate::model::{Gpu, GpuInstance, MigMode, Placement, Snapshot};
use crate::placement::{Movable, Occupancy, Slot};
use crate::store::{Damaged, Lease, Lock, Ownership, RecordName, State, Waiting};

/// Driver, ledger and queue at one moment.
#[derive(Debug, Default)]
pub struct Inventory {
    /// The driver's answers.
    pub snapshot: Snapshot,
    /// Leases of this boot.
    pub leases: Vec<Lease>,
    /// Idle slices of an earlier boot: records alone, which the next create removes.
    pub idle_of_earlier_boot: Vec<Lease>,
    /// Names of this boot whose records cannot be read.
    pub(super) damaged: Vec<RecordName>,
    /// Queued requests, in their order.
    pub waiting: Vec<Waiting>,
    /// Idle slices, by lease, that cannot be handed out: the next create destroys them before it looks for
    /// a place.
    pub(super) over: Vec<String>,
    /// Places of leases that were on record before the driver was asked.
    before: Vec<Slot>,
    /// Why the ledger could not be read, or a part of it.
    pub unread: Vec<Error>,
}

impl Inventory {
    /// Returns what the driver has where the ledger is missing or cannot be read.
    pub fn look(config: &Config, driver: &impl Queries) -> Result<Inventory> {
        let mut inventory = Inventory::without_ledger(driver)?;
        let ledger = LeaseContext::existing(config, Box::new(NoBundles));
        let read = |context: LeaseContext<'_>| {
            inventory.waiting = context.store.waiting()?;
            inventory.add_ledger(&context)
        };
        if let Err(e) = ledger.and_then(|context| context.map_or(Ok(()), read)) {
            inventory.unread.push(e);
        }
        Ok(inventory)
    }

    /// Reads the machine without a lock, for callers that decide nothing. `waiting`: the requests that
    /// came before.
    pub(crate) fn read(
        context: &LeaseContext<'_>,
        driver: &impl Queries,
        waiting: Vec<Waiting>,
    ) -> Result<Inventory> {
        let mut inventory = Inventory::without_ledger(driver)?;
        inventory.waiting = waiting;
        inventory.add_ledger(context)?;
        Ok(inventory)
    }

    /// Reads the machine for a decision: no other create chooses a place meanwhile.
    pub(crate) fn locked(
        context: &LeaseContext<'_>,
        driver: &impl Queries,
        waiting: Vec<Waiting>,
        _plan: &Lock,
    ) -> Result<Inventory> {
        // An instance that is released while the driver is asked was runmig's. It matters to those who wait.
        let mut before = Inventory::default();
        if !waiting.is_empty() {
            before.add_ledger(context)?;
        }
        let mut inventory = Inventory::read(context, driver, waiting)?;
        inventory.before = before.ours();
        for e in &inventory.unread {
            tracing::warn!("{}", e.line());
        }
        Ok(inventory)
    }

    fn without_ledger(driver: &impl Queries) -> Result<Inventory> {
        Ok(Inventory {
            snapshot: driver.snapshot()?,
            ..Inventory::default()
        })
    }

    fn add_ledger(&mut self, context: &LeaseContext<'_>) -> Result<()> {
        let (mut leases, damaged) = context.store.list()?;
        let earlier = leases.extract_if(.., |l| l.boot_id != context.boot_id);
        self.idle_of_earlier_boot = earlier.filter(|l| l.idle_since.is_some()).collect();
        for Damaged { file, why, name } in damaged {
            let file = printable(&file.to_string_lossy());
            let unread = Error::new(format!("lease {file} cannot be read")).caused_by(why);
            self.unread.push(unread);
            self.damaged.extend(name);
        }
        self.damaged.retain(|c| c.boot_id == context.boot_id);
        let over = leases.iter().filter(|l| {
            let is_idle = l.idle_since.is_some();
            is_idle && !idle::is_usable(context.config, &self.snapshot, &leases, l)
        });
        self.over = over.map(|l| l.id.clone()).collect();
        self.leases = leases;
        Ok(())
    }

    /// Returns the machine as it would be with MIG on everywhere: each GPU whose MIG mode is off offers its
    /// profiles. None where that changes nothing; a GPU that does not tell its profiles stays off.
    pub fn with_mig_on(&self, driver: &impl Queries) -> Option<Inventory> {
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
        changed.then(|| self.on(snapshot))
    }

    /// Returns the ledger of this boot beside another machine. Errors of the look are told once, with this
    /// inventory.
    fn on(&self, snapshot: Snapshot) -> Inventory {
        Inventory {
            snapshot,
            idle_of_earlier_boot: Vec::new(),
            leases: self.leases.clone(),
            damaged: self.damaged.clone(),
            waiting: self.waiting.clone(),
            over: self.over.clone(),
            before: self.before.clone(),
            unread: Vec::new(),
        }
    }

    /// Returns all places that the ledger has promised, idle slices among them.
    pub fn taken(&self) -> Vec<Slot> {
        [self.reserved(), self.idle()].concat()
    }

    /// Returns the places that are held.
    pub fn reserved(&self) -> Vec<Slot> {
        let held = self.leases.iter().filter(|l| l.idle_since.is_none());
        let held = held.map(|l| slot_of(&l.slice));
        held.chain(self.damaged.iter().map(reserved)).collect()
    }

    /// Returns the places of idle slices.
    pub fn idle(&self) -> Vec<Slot> {
        let idle = self.leases.iter().filter(|l| l.idle_since.is_some());
        idle.map(|l| slot_of(&l.slice)).collect()
    }

    /// Returns the places of instances that end one day: all but those of an administrator.
    pub fn ours(&self) -> Vec<Slot> {
        let leases = self.leases.iter().filter(|l| !l.adopted);
        let leases = leases.map(|l| slot_of(&l.slice));
        let damaged = self
            .damaged
            .iter()
            .filter(|c| c.ownership != Ownership::Adopted);
        let before = self.before.iter().cloned();
        leases.chain(damaged.map(reserved)).chain(before).collect()
    }

    /// Returns the places that are not free and not in use: runmig could not destroy the instance, or
    /// cannot read the record.
    pub fn quarantined(&self) -> Vec<Slot> {
        let quarantined = self.leases.iter().filter(|l| l.is_quarantined());
        let quarantined = quarantined.map(|l| slot_of(&l.slice));
        let damaged = self.damaged.iter().map(reserved);
        quarantined.chain(damaged).collect()
    }

    /// Returns the idle slices that can be handed out.
    pub(crate) fn idle_leases(&self) -> impl Iterator<Item = &Lease> {
        let idle = self.leases.iter().filter(|l| l.idle_since.is_some());
        idle.filter(|l| !self.over.contains(&l.id))
    }

    /// Returns the idle slices that a create destroys before it looks for a place.
    pub(crate) fn idle_over(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter().filter(|l| self.over.contains(&l.id))
    }

    /// Returns the machine as it is once a create has destroyed the idle slices that are over.
    pub(crate) fn without_idle_over(&self) -> Inventory {
        let mut snapshot = self.snapshot.clone();
        for slice in self.idle_over().map(|l| &l.slice) {
            let is_it = |i: &GpuInstance| {
                (i.profile_id, i.placement) == (slice.profile_id, slice.placement)
            };
            let gpus = snapshot.gpus.iter_mut();
            { gpus }
                .filter(|gpu| gpu.uuid == slice.gpu_uuid)
                .for_each(|gpu| gpu.instances.retain(|i| !is_it(i)));
        }
        let mut then = self.on(snapshot);
        then.leases.retain(|l| !self.over.contains(&l.id));
        then.over.clear();
        then
    }

    /// Returns the slices that a restart of their containers could move, each with its leases. An instance
    /// of an administrator stays where it is. A container with several slices has all of them created
    /// anew, which no plan foresees. Rules of the policy are not applied here.
    pub fn movable(&self) -> (Vec<Movable>, Vec<Vec<&Lease>>) {
        let (mut all, mut whose): (Vec<Movable>, Vec<Vec<&Lease>>) = Default::default();
        let is_one_of_several = |l: &Lease| {
            let mut others = self.leases.iter().filter(|o| o.id != l.id);
            others.any(|o| o.holder.key == l.holder.key && o.state != State::Releasing)
        };
        let moves = |l: &&Lease| l.state != State::Releasing && !l.adopted && !is_one_of_several(l);
        for lease in self.leases.iter().filter(moves) {
            let slot = slot_of(&lease.slice);
            match all.iter().position(|m| m.slot == slot) {
                Some(at) => {
                    all[at].containers += 1;
                    whose[at].push(lease);
                }
                None => {
                    all.push(Movable {
                        slot,
                        containers: 1,
                        excluded: Vec::new(),
                    });
                    whose.push(vec![lease]);
                }
            }
        }
        (all, whose)
    }

    /// Returns the leases that hold the instance at a place.
    pub fn holders(&self, gpu: &Gpu, at: Placement) -> Vec<&Lease> {
        let here = |l: &&Lease| l.slice.gpu_uuid == gpu.uuid && l.slice.placement == at;
        self.leases.iter().filter(here).collect()
    }

    /// Says whether an unreadable record names the instance at a place.
    pub fn is_damaged(&self, gpu: &Gpu, at: Placement) -> bool {
        let mut names = self.damaged.iter();
        names.any(|c| c.gpu_uuid == gpu.uuid && c.placement == at)
    }

    /// Returns the occupancy of a GPU: its instances, and the slots that leases reserve.
    pub fn room<'g>(&self, gpu: &'g Gpu) -> Occupancy<'g> {
        Occupancy::new(gpu, &self.reserved(), &self.idle())
    }
}

fn reserved(name: &RecordName) -> Slot {
    Slot {
        gpu: name.gpu_uuid.clone(),
        profile_id: name.profile_id,
        placement: name.placement,
    }
}
