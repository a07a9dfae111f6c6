//! Kubernetes' scheduler, as far as it counts: devices in the order of the slices' names, and sums of counters.

use k8s_openapi::api::resource::v1::{self as api, Counter, ResourceSlice};
use runmig_dra::resource_slices::{Amounts, DeviceName};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

/// A published device, with its counters as numbers.
#[derive(Debug, PartialEq)]
pub struct Device {
    pub name: DeviceName,
    pub counter_set: String,
    pub consumes: Amounts,
    /// The key of its taint.
    pub taint: Option<String>,
}

impl Device {
    fn of(device: &api::Device) -> Device {
        let [consumption] = &device.consumes_counters.as_deref().unwrap() else {
            panic!("{device:?}");
        };
        let taint = device.taints.iter().flatten().next();
        Device {
            name: device.name.parse().unwrap(),
            counter_set: consumption.counter_set.clone(),
            consumes: amounts(&consumption.counters),
            taint: taint.map(|taint| taint.key.clone()),
        }
    }
}

fn amounts(counters: &BTreeMap<String, Counter>) -> Amounts {
    let amount = |counter: &Counter| {
        let text = &counter.value.0;
        let digits = text.trim_end_matches(char::is_alphabetic);
        let mut units = ["", "Ki", "Mi", "Gi", "Ti"].into_iter();
        let bits = units.position(|unit| unit == &text[digits.len()..]);
        digits.parse::<u64>().unwrap() << (10 * bits.unwrap())
    };
    { counters.iter() }
        .map(|(name, counter)| (name.clone(), amount(counter)))
        .collect()
}

pub struct Scheduler {
    room: BTreeMap<String, Amounts>,
    devices: Vec<Rc<Device>>,
    allocated: HashSet<DeviceName>,
}

impl Scheduler {
    pub fn new(slices: &[ResourceSlice], allocated: &HashSet<DeviceName>) -> Scheduler {
        let mut slices: Vec<&ResourceSlice> = slices.iter().collect();
        slices.sort_by_key(|slice| &slice.metadata.name);
        let devices = { slices.iter() }.flat_map(|slice| slice.spec.devices.iter().flatten());
        let mut scheduler = Scheduler {
            room: rooms(slices.iter().copied()),
            devices: devices.map(|device| Rc::new(Device::of(device))).collect(),
            allocated: HashSet::new(),
        };
        for name in allocated {
            scheduler.allocate(name);
        }
        scheduler
    }

    pub fn device(&self, name: &DeviceName) -> Rc<Device> {
        let found = self.devices.iter().find(|device| device.name == *name);
        let found = found.unwrap_or_else(|| panic!("{name} is not published"));
        found.clone()
    }

    pub fn devices(&self) -> &[Rc<Device>] {
        &self.devices
    }

    /// Says whether the counters have room for a device.
    pub fn fits(&self, device: &Device) -> bool {
        let room = &self.room[&device.counter_set];
        let has_room = |(counter, n): (&String, &u64)| room[counter] >= *n;
        !self.allocated.contains(&device.name) && device.consumes.iter().all(has_room)
    }

    pub fn allocate(&mut self, name: &DeviceName) {
        let device = self.device(name);
        let room = self.room.get_mut(&device.counter_set).unwrap();
        for (counter, n) in &device.consumes {
            // The device of a claim may consume more than is left, which is then nothing.
            let left = room.get_mut(counter).unwrap();
            *left = left.saturating_sub(*n);
        }
        self.allocated.insert(name.clone());
    }

    /// The first device of a profile that a claim can get.
    pub fn first(&self, profile: &str) -> Option<&Device> {
        let fits = |device: &&Rc<Device>| {
            *profile == *device.name.profile() && device.taint.is_none() && self.fits(device)
        };
        self.devices.iter().find(fits).map(Rc::as_ref)
    }
}

fn rooms<'s>(slices: impl IntoIterator<Item = &'s ResourceSlice>) -> BTreeMap<String, Amounts> {
    let slices = slices.into_iter();
    let sets = slices.flat_map(|slice| slice.spec.shared_counters.iter().flatten());
    sets.map(|set| (set.name.clone(), amounts(&set.counters)))
        .collect()
}

/// The counter set of a GPU.
pub fn counters(slices: &[ResourceSlice], set: &str) -> Amounts {
    rooms(slices).remove(set).unwrap()
}
