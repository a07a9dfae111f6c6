//! Driver, ledger and queue at one moment. Creates, `list`, `gpus` and `explain` read the
//! machine through this file alone.

mod around;
mod booking;
mod gpu_use;
mod observe;
mod slices;

pub(crate) use around::AroundMps;
pub use booking::{GpuBooking, LeaseUse, uses};
pub(crate) use booking::{holder_subject, memory_of, memory_on, subject_of};
pub use gpu_use::{GpuParts, GpuState};
pub use observe::{ObservedShare, observe};
pub use slices::SliceView;

use super::bundles::NoBundles;
use super::cordons;
use super::draft::{footprint, slot_of};
use super::idle;
use super::leases::Leases;
use crate::config::Config;
use crate::counters::Counts;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::model::{Gpu, GpuInstance, GpuUuid, InstanceId, MigMode, Placement, Snapshot};
use crate::placement::{Movable, Occupancy, Slot};
use crate::store::{Entry, Held, Instance, LeaseState, Lock, Resource, Waiting};
use std::sync::Arc;

/// Driver, ledger and queue at one moment.
#[derive(Debug, Default)]
pub struct Inventory {
    /// The driver's answers.
    pub snapshot: Snapshot,
    /// Leases of this boot, with their instances.
    pub leases: Vec<Held>,
    /// Instances of this boot without a lease.
    pub unleased: Vec<Arc<Instance>>,
    /// The counters of this boot.
    pub counters: Counts,
    /// Queued requests, in their order.
    pub waiting: Vec<Waiting>,
    /// Idle slices, by instance, that cannot be handed out: the next create destroys them before it looks for
    /// a place.
    pub(super) over: Vec<InstanceId>,
    /// Places of leases that were on record before the driver was asked.
    before: Vec<Slot>,
    /// Why the ledger could not be read. Then nothing tells which places are taken.
    pub unread: Option<Error>,
}

impl Inventory {
    /// Returns what the driver has where the ledger is missing or cannot be read.
    pub fn look(config: &Config, driver: &impl Queries) -> Result<Inventory> {
        let inventory = Inventory::without_ledger(config, driver)?;
        Ok(inventory.with_ledger(config))
    }

    /// Returns what the ledger has, without any answer of the driver.
    pub fn of_ledger(config: &Config) -> Inventory {
        Inventory::default().with_ledger(config)
    }

    fn with_ledger(mut self, config: &Config) -> Inventory {
        let read = |inventory: &mut Inventory| {
            let context = Leases::to_look(config, Box::new(NoBundles))?;
            inventory.add_ledger(&context)?;
            inventory.waiting = context.store.waiting()?;
            Ok(())
        };
        self.unread = read(&mut self).err();
        self
    }

    /// Reads the machine without a lock, for callers that decide nothing. `waiting`: the requests that
    /// came before.
    pub(crate) fn read(
        context: &Leases<'_>,
        driver: &impl Queries,
        waiting: Vec<Waiting>,
    ) -> Result<Inventory> {
        let mut inventory = Inventory::without_ledger(context.config, driver)?;
        inventory.waiting = waiting;
        inventory.add_ledger(context)?;
        Ok(inventory)
    }

    /// Reads the machine for a decision: no other create chooses a place meanwhile.
    pub(crate) fn locked(
        context: &Leases<'_>,
        driver: &impl Queries,
        waiting: Vec<Waiting>,
        _plan: &Lock,
    ) -> Result<Inventory> {
        // An instance that is released while the driver is asked was runmig's. It matters to waiting requests.
        let mut before = Inventory::default();
        if !waiting.is_empty() {
            before.add_ledger(context)?;
        }
        let mut inventory = Inventory::read(context, driver, waiting)?;
        inventory.before = before.ours();
        Ok(inventory)
    }

    fn without_ledger(config: &Config, driver: &impl Queries) -> Result<Inventory> {
        let mut snapshot = driver.snapshot()?;
        cordons::mark(config, driver, &mut snapshot);
        Ok(Inventory {
            snapshot,
            ..Inventory::default()
        })
    }

    fn add_ledger(&mut self, context: &Leases<'_>) -> Result<()> {
        let listing = context.store.list()?;
        self.counters = listing.counters;
        for entry in listing.entries {
            match entry {
                Entry::Held(held) => self.leases.push(held),
                Entry::Unleased(instance) => self.unleased.push(instance),
            }
        }
        let over = self
            .idle_instances()
            .filter(|idle| !idle::is_usable(context.config, &self.snapshot, idle));
        self.over = over.map(|idle| idle.id.clone()).collect();
        Ok(())
    }

    /// Returns the GPUs outside of MIG mode that a container has, or a share of, with the container.
    pub fn held_gpus(&self) -> Vec<(GpuUuid, String)> {
        let off = |gpu: &&Gpu| gpu.mig == MigMode::Disabled;
        let held = self.leases.iter().filter_map(|held| {
            let Resource::Gpu(whole) = &held.instance.resource else {
                return None;
            };
            self.snapshot.gpu(&whole.gpu_uuid).filter(off)?;
            let part = match held.lease.share() {
                Some(_) => "a share",
                None => "all",
            };
            let why = format!("{} has {part} of it", held.lease.holder.title());
            Some((whole.gpu_uuid.clone(), why))
        });
        held.collect()
    }

    /// Returns the machine as it would be with MIG on everywhere, or none if that changes nothing. Each GPU
    /// with MIG off offers its profiles then. A GPU that does not tell its profiles stays off.
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

    /// Returns the ledger of this boot beside another machine. What could not be read stays unknown there.
    pub(crate) fn on(&self, snapshot: Snapshot) -> Inventory {
        Inventory {
            snapshot,
            leases: self.leases.clone(),
            unleased: self.unleased.clone(),
            counters: Counts::default(),
            waiting: self.waiting.clone(),
            over: self.over.clone(),
            before: self.before.clone(),
            unread: { self.unread.as_ref() }.map(|e| Error::new(e.reason())),
        }
    }

    /// Returns all places that the ledger has promised, idle slices among them.
    pub fn taken(&self) -> Vec<Slot> {
        [self.reserved(), self.idle()].concat()
    }

    /// Returns all instances of this boot, each once.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        let mut known = std::collections::BTreeSet::new();
        let leased = self.leases.iter().map(|h| &*h.instance);
        let leased = leased.filter(move |i| known.insert(i.id.as_str()));
        leased.chain(self.without_lease())
    }

    fn without_lease(&self) -> impl Iterator<Item = &Instance> {
        self.unleased.iter().map(Arc::as_ref)
    }

    /// Returns the leases on a GPU.
    fn leases_at<'a>(&'a self, gpu: &GpuUuid) -> impl Iterator<Item = &'a Held> {
        { self.leases.iter() }.filter(move |held| held.instance.resource.gpu_uuid() == gpu)
    }

    /// Returns the instances without a lease on a GPU.
    fn without_lease_at<'a>(&'a self, gpu: &GpuUuid) -> impl Iterator<Item = &'a Instance> {
        { self.without_lease() }.filter(move |instance| instance.resource.gpu_uuid() == gpu)
    }

    fn idle_instances(&self) -> impl Iterator<Item = &Instance> {
        self.without_lease().filter(|i| i.idle_since().is_some())
    }

    /// Returns the places that are held.
    pub fn reserved(&self) -> Vec<Slot> {
        self.held_beside(self.without_lease().filter(|i| i.idle_since().is_none()))
    }

    /// Returns the places of these instances without a lease, and of all that are held.
    fn held_beside<'a>(&'a self, going: impl Iterator<Item = &'a Instance>) -> Vec<Slot> {
        let leased = self.leases.iter().map(|h| &*h.instance);
        leased.chain(going).map(footprint).collect()
    }

    /// Returns the places of idle slices.
    pub fn idle(&self) -> Vec<Slot> {
        self.idle_instances().map(footprint).collect()
    }

    /// Returns the instance of a layout without a lease at a place.
    pub(crate) fn of_layout(&self, slot: &Slot) -> Option<&Instance> {
        let mut of_layouts = self.without_lease().filter(|i| i.is_of_layout());
        of_layouts.find(|i| footprint(i) == *slot)
    }

    /// Returns all places that the ledger has promised, but those of layouts without a lease: a create may adopt such an
    /// instance like a foreign one.
    pub(crate) fn unadoptable(&self) -> Vec<Slot> {
        let unleased = self.without_lease();
        let going = unleased.filter(|i| i.idle_since().is_none() && !i.is_of_layout());
        [self.held_beside(going), self.idle()].concat()
    }

    /// Returns the places of instances that end one day: all but those of an administrator.
    pub fn ours(&self) -> Vec<Slot> {
        let ours = self.instances().filter(|i| !i.outlives_leases());
        let ours = ours.map(footprint);
        ours.chain(self.before.iter().cloned()).collect()
    }

    /// Returns the places that are not free and not in use: runmig could not destroy the instance.
    pub fn quarantined(&self) -> Vec<Slot> {
        let quarantined = self.instances().filter(|i| i.attempt().is_some());
        quarantined.map(footprint).collect()
    }

    /// Returns the idle slices that can be handed out.
    pub(crate) fn usable_idle(&self) -> impl Iterator<Item = &Instance> {
        self.idle_instances().filter(|i| !self.over.contains(&i.id))
    }

    /// Returns the idle slices that a create destroys before it looks for a place.
    pub(crate) fn idle_over(&self) -> impl Iterator<Item = &Instance> {
        self.idle_instances().filter(|i| self.over.contains(&i.id))
    }

    /// Returns the machine as it is once a create has destroyed the idle slices that are over.
    pub fn without_idle_over(&self) -> Inventory {
        let mut snapshot = self.snapshot.clone();
        let over = self.idle_over().filter_map(Instance::slice);
        let over: Vec<Slot> = over.map(slot_of).collect();
        for gpu in &mut snapshot.gpus {
            let slot = |i: &GpuInstance| Slot::new(&gpu.uuid, i.profile_id, i.placement);
            gpu.instances.retain(|i| !over.contains(&slot(i)));
        }
        let mut then = self.on(snapshot);
        then.unleased.retain(|i| !self.over.contains(&i.id));
        then.over.clear();
        then
    }

    /// Returns the slices that a restart of their containers could move, each with its leases. An instance
    /// of an administrator stays where it is. A container with several slices has all of them created
    /// anew, which no plan foresees. Rules of the policy are not applied here.
    pub fn movable(&self) -> (Vec<Movable>, Vec<Vec<&Held>>) {
        let (mut all, mut holders): (Vec<Movable>, Vec<Vec<&Held>>) = Default::default();
        let is_one_of_several = |h: &Held| {
            let mut others = self.leases.iter().filter(|o| o.lease.id != h.lease.id);
            others.any(|o| {
                let is_its = o.lease.holder.is(&h.lease.holder);
                is_its && o.lease.state != LeaseState::Releasing
            })
        };
        let moves = |h: &&Held| {
            // A claim names its device, so no restart moves it, nor a container on it.
            let is_claim = h.lease.is_of_claim();
            let is_going = h.lease.state == LeaseState::Releasing;
            let is_fixed = is_going || is_claim || h.instance.outlives_leases();
            // A seat finds its place anew after a restart.
            !is_fixed && h.lease.share().is_none() && !is_one_of_several(h)
        };
        for lease in self.leases.iter().filter(moves) {
            let Some(slot) = lease.instance.slice().map(slot_of) else {
                continue;
            };
            match all.iter().position(|m| m.slot == slot) {
                Some(at) => {
                    all[at].containers += 1;
                    holders[at].push(lease);
                }
                None => {
                    all.push(Movable {
                        slot,
                        containers: 1,
                        excluded: Vec::new(),
                    });
                    holders.push(vec![lease]);
                }
            }
        }
        (all, holders)
    }

    /// Returns the leases on the instance at a place, or the instance alone.
    pub fn at(&self, gpu: &Gpu, at: Placement) -> Vec<Entry> {
        let mut here = self.entries();
        here.retain(|entry| footprint(entry.instance()).is_at(&gpu.uuid, at));
        here
    }

    /// Returns the occupancy of a GPU: its instances, and the slots that leases reserve.
    pub fn room<'g>(&self, gpu: &'g Gpu) -> Occupancy<'g> {
        Occupancy::new(gpu, &self.reserved(), &self.idle())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Container, Holder, InstanceState, Key, Lease, tests};

    #[test]
    fn tells_of_a_ledger_that_it_cannot_read() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            state_dir: dir.path().to_owned(),
            ..Config::default()
        };
        assert!(Inventory::of_ledger(&config).unread.is_none());
        std::fs::write(dir.path().join("ledger.json"), "damaged").unwrap();
        assert!(Inventory::of_ledger(&config).unread.is_some());
    }

    #[test]
    fn counts_the_containers_that_a_move_restarts() {
        let instance = Arc::new(Instance {
            state: InstanceState::Ready,
            ..tests::instance("shared")
        });
        let held = |id: &str| {
            let holder = Holder::Container(Container {
                key: Key::new("/run/runc".into(), id.to_owned()),
                ..Container::default()
            });
            let lease = Lease {
                state: LeaseState::Ready,
                holder,
                ..tests::lease(id)
            };
            Held {
                lease: lease.into(),
                instance: instance.clone(),
            }
        };
        let inventory = Inventory {
            leases: ["a", "b", "c"].map(held).into(),
            ..Inventory::default()
        };
        let (movable, holders) = inventory.movable();
        assert_eq!(movable.len(), 1);
        assert_eq!((movable[0].containers, holders[0].len()), (3, 3));

        // What is on its way out gives its place back by itself.
        let mut going = held("a");
        Arc::make_mut(&mut going.lease).state = LeaseState::Releasing;
        let inventory = Inventory {
            leases: [going].into(),
            ..Inventory::default()
        };
        assert_eq!(inventory.movable().0.len(), 0);
    }
}
