//! Kubernetes' scheduler, as far as it counts: devices in the order of the slices' names, and sums of counters.

use runmig_dra::resource_slices::{Amounts, Content, Device, DeviceName, PublishedSlice};
use std::collections::{BTreeMap, HashSet};

pub struct Scheduler<'s> {
    room: BTreeMap<&'s str, BTreeMap<&'s str, i128>>,
    devices: Vec<&'s Device>,
    allocated: HashSet<DeviceName>,
}

impl<'s> Scheduler<'s> {
    pub fn new(slices: &'s [PublishedSlice], allocated: &HashSet<DeviceName>) -> Scheduler<'s> {
        let mut slices: Vec<&PublishedSlice> = slices.iter().collect();
        slices.sort_by_key(|slice| &slice.name);
        let (mut room, mut devices) = (BTreeMap::new(), Vec::new());
        for slice in slices {
            match &slice.content {
                Content::Counters(sets) => room.extend(sets.iter().map(|set| {
                    let counters = set.counters.iter();
                    let counters = counters.map(|(name, n)| (name.as_str(), i128::from(*n)));
                    (set.name.as_str(), counters.collect())
                })),
                Content::Devices(ours) => devices.extend(ours),
            }
        }
        let mut scheduler = Scheduler {
            room,
            devices,
            allocated: HashSet::new(),
        };
        for name in allocated {
            scheduler.allocate(name);
        }
        scheduler
    }

    pub fn device(&self, name: &DeviceName) -> &'s Device {
        let found = self.devices.iter().find(|device| device.name == *name);
        found.unwrap_or_else(|| panic!("{name} is not published"))
    }

    pub fn devices(&self) -> &[&'s Device] {
        &self.devices
    }

    /// Says whether the counters have room for a device.
    pub fn fits(&self, device: &Device) -> bool {
        let room = &self.room[device.counter_set.as_str()];
        let has_room = |(counter, n): (&String, &u64)| room[counter.as_str()] >= i128::from(*n);
        !self.allocated.contains(&device.name) && device.consumes.iter().all(has_room)
    }

    pub fn allocate(&mut self, name: &DeviceName) {
        let device = self.device(name);
        let room = self.room.get_mut(device.counter_set.as_str()).unwrap();
        for (counter, n) in &device.consumes {
            *room.get_mut(counter.as_str()).unwrap() -= i128::from(*n);
        }
        self.allocated.insert(name.clone());
    }

    /// The first device of a profile that a claim can get.
    pub fn first(&self, profile: &str) -> Option<&'s Device> {
        let mut devices = self.devices.iter();
        let fits = |device: &&&Device| {
            *profile == *device.name.profile() && device.taint.is_none() && self.fits(device)
        };
        devices.find(fits).copied()
    }
}

/// The counter set of a GPU.
pub fn counters<'s>(slices: &'s [PublishedSlice], set: &str) -> &'s Amounts {
    let sets = slices.iter().flat_map(|slice| match &slice.content {
        Content::Counters(sets) => sets.as_slice(),
        Content::Devices(_) => &[],
    });
    let mut found = sets.filter(|s| s.name == set);
    &found.next().unwrap().counters
}
