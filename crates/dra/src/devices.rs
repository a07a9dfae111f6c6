//! The devices that the driver publishes: the places of one profile on the first GPU in MIG mode.

use runmig_lease::ClaimPlace;
use runmig_lease::error::{Error, Result};
use runmig_lease::model::{Gpu, MigMode, Placement, Profile, Snapshot};

/// The published profile.
const PROFILE: &str = "1g.10gb";

/// A place for a slice, under the name that claims give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// The name: PCI address, profile and place. A reboot and a replaced GPU keep it.
    pub(crate) name: String,
    /// The place.
    pub(crate) place: ClaimPlace,
    /// The name of the GPU's model.
    pub(crate) model: String,
    /// The memory of the slice, in MiB.
    pub(crate) memory_mib: u64,
}

/// Returns the devices of a machine.
pub(crate) fn devices(snapshot: &Snapshot) -> Vec<Device> {
    let mut gpus = snapshot.gpus.iter();
    let Some(gpu) = gpus.find(|gpu| gpu.mig == MigMode::Enabled) else {
        return Vec::new();
    };
    let profiles = gpu
        .profiles
        .iter()
        .filter(|profile| profile.name == PROFILE);
    let places =
        profiles.flat_map(|profile| profile.placements.iter().map(move |at| (profile, *at)));
    places
        .map(|(profile, at)| device(gpu, profile, at))
        .collect()
}

/// Returns the place that a device names.
pub(crate) fn find(snapshot: &Snapshot, name: &str) -> Result<ClaimPlace> {
    let mut devices = devices(snapshot).into_iter();
    let found = devices.find(|device| device.name == name);
    found.map(|device| device.place).ok_or_else(|| {
        Error::new(format!("device {name} is not on this node"))
            .hint("run migctl gpus on the node to see its GPUs and their MIG modes")
    })
}

fn device(gpu: &Gpu, profile: &Profile, at: Placement) -> Device {
    let label = |text: &str| text.to_ascii_lowercase().replace([':', '.', '+'], "-");
    Device {
        name: format!(
            "gpu-{}-{}-{}",
            label(&gpu.pci_bus_id),
            label(&profile.name),
            at.start
        ),
        place: ClaimPlace {
            gpu: gpu.uuid.clone(),
            profile: profile.name.clone(),
            placement: at,
        },
        model: gpu.name.clone(),
        memory_mib: profile.memory_mib,
    }
}
