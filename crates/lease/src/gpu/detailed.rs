//! A GPU with the details that files of MIG layouts name.

use crate::gpu::geometry::Offer;
use crate::model::{ComputeInstance, Gpu, Part, Placement, Profile};
use std::collections::BTreeMap;

/// A GPU with its model's number, every profile that it offers, and every compute instance on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailedGpu {
    /// The GPU.
    pub gpu: Gpu,
    /// The PCI device number in the upper half, the vendor's in the lower.
    pub device_id: u32,
    /// The PCI numbers of the subsystem, in the same order.
    pub subsystem_id: u32,
    /// The profiles with NVML's numbers, also where MIG is off; none where the GPU has no MIG.
    pub offers: Vec<Offer>,
    /// The GPU instances in the driver's order, profile after profile.
    pub instances: Vec<DetailedInstance>,
}

impl DetailedGpu {
    /// Returns the profile with this id, also where MIG is off.
    pub fn offered(&self, id: u32) -> Option<&Profile> {
        let mut profiles = self.offers.iter().map(|offer| &offer.profile);
        profiles.find(|profile| profile.id == id)
    }

    /// Returns the profile of an instance on this GPU.
    pub fn profile(&self, instance: &DetailedInstance) -> Option<&Profile> {
        let mut offers = self.offers.iter();
        let offer = offers.find(|offer| offer.number == instance.number)?;
        Some(&offer.profile)
    }
}

/// A GPU instance with its compute instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailedInstance {
    /// The driver's id.
    pub id: u32,
    /// The profile's number in NVML's enumeration, which is not its id.
    pub number: u32,
    /// The memory slices of the instance.
    pub placement: Placement,
    /// The compute instances in the driver's order, profile after profile.
    pub compute_instances: Vec<DetailedCompute>,
    /// The number of further compute instances that fit, by their compute slices, each size alone. One without compute
    /// instances, and one that is full, tell none.
    pub room: BTreeMap<u32, u32>,
}

/// A compute instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailedCompute {
    /// The profile's number in NVML's enumeration.
    pub number: u32,
    /// Its compute slices.
    pub slices: u32,
    /// The instance by its ids.
    pub instance: ComputeInstance,
}

impl DetailedCompute {
    /// Returns what it takes.
    pub fn part(&self) -> Part {
        Part {
            slices: self.slices,
            number: Some(self.number),
        }
    }
}
