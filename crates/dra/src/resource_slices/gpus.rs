//! The GPUs whose devices a node publishes, and why it leaves out others.

use super::counters::{self, MAX_COUNTERS};
use super::names::{DeviceName, PciAddress};
use super::node::Node;
use runmig_lease::model::{Closed, Gpu, MigMode, Placement, Profile};
use std::collections::BTreeSet;

/// A GPU with the devices that the node publishes for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedGpu {
    /// The PCI address.
    pub address: PciAddress,
    /// The driver's description, of an earlier moment if the GPU does not answer.
    pub gpu: Gpu,
    /// The CUDA compute capability, if it is known.
    pub compute_capability: Option<(u32, u32)>,
    /// The devices, in a fixed order.
    pub offers: Vec<Offer>,
    /// Says whether claims can get slices of the GPU.
    pub is_usable: bool,
}

/// A device and the profile that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The name of the device.
    pub name: DeviceName,
    /// The profile.
    pub profile: Profile,
    /// Why no other claim gets the device.
    pub taint: Option<Taint>,
}

/// Why no other claim gets a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taint {
    /// It does not work.
    Unhealthy,
    /// An administrator has cordoned the GPU.
    Cordoned,
    /// The device is published only until its claim ends.
    Withdrawn,
}

/// A GPU, or a part of one, that the node does not publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The GPU, or its profile.
    pub what: String,
    /// The reason.
    pub reason: String,
}

/// Selects the GPUs, sorted by PCI address. `known` are those of the last layout.
pub(super) fn select(node: &Node<'_>, known: &[PublishedGpu]) -> (Vec<PublishedGpu>, Vec<LeftOut>) {
    let mut selection = Selection {
        node,
        known,
        seen: BTreeSet::new(),
        gpus: Vec::new(),
        left_out: Vec::new(),
    };
    for gpu in &node.snapshot.gpus {
        selection.look(gpu);
    }
    for (index, why) in &node.snapshot.unreadable {
        selection.leave_out(format!("GPU {index}"), why.clone());
    }
    selection.keep_missing();
    selection.gpus.sort_by_key(|gpu| gpu.address);
    (selection.gpus, selection.left_out)
}

struct Selection<'n> {
    node: &'n Node<'n>,
    known: &'n [PublishedGpu],
    seen: BTreeSet<PciAddress>,
    gpus: Vec<PublishedGpu>,
    left_out: Vec<LeftOut>,
}

impl Selection<'_> {
    fn leave_out(&mut self, what: String, reason: String) {
        self.left_out.push(LeftOut { what, reason });
    }

    fn look(&mut self, gpu: &Gpu) {
        let Ok(address) = gpu.pci_bus_id.parse::<PciAddress>() else {
            let reason = format!("its PCI address \"{}\" is malformed", gpu.pci_bus_id);
            return self.leave_out(format!("GPU {}", gpu.index), reason);
        };
        let what = format!("GPU {} at {address}", gpu.index);
        if !self.seen.insert(address) {
            return self.leave_out(what, "another GPU has its PCI address".to_owned());
        }
        match self.obstacle(gpu) {
            Some(reason) => {
                self.keep_claimed(address, Some(gpu), Taint::Withdrawn);
                self.leave_out(what, reason);
            }
            None => self.publish(address, gpu, &what),
        }
    }

    /// Returns why claims cannot get slices of a GPU.
    fn obstacle(&self, gpu: &Gpu) -> Option<String> {
        let mode = match (gpu.mig, gpu.mig_pending) {
            (MigMode::Unsupported, _) => Some("it does not support MIG"),
            (MigMode::Disabled, Some(MigMode::Enabled)) => {
                Some("its MIG mode is off until the next reset of the GPU")
            }
            (MigMode::Disabled, _) => Some("its MIG mode is off"),
            (MigMode::Enabled, Some(MigMode::Disabled)) => {
                Some("the next reset of the GPU switches its MIG mode off")
            }
            (MigMode::Enabled, _) => None,
        };
        let mut rules = self.node.excluded.iter();
        let rule = rules.find(|(uuid, _)| *uuid == gpu.uuid);
        if let Some(why) = mode.or(rule.map(|(_, rule)| rule.as_str())) {
            return Some(why.to_owned());
        }
        match counters::totals(gpu).len() {
            0 | 1 => Some("it offers no profile".to_owned()),
            2..=MAX_COUNTERS => None,
            many => Some(format!(
                "it needs {many} counters, more than {MAX_COUNTERS}"
            )),
        }
    }

    fn publish(&mut self, address: PciAddress, gpu: &Gpu, what: &str) {
        let taint = match gpu.closed.as_ref().and_then(Closed::sickness) {
            Some(_) => Some(Taint::Unhealthy),
            None => gpu.shut().map(|_| Taint::Cordoned),
        };
        let mut offers = Vec::new();
        for profile in &gpu.profiles {
            if self.node.denied_profiles.contains(&profile.name) {
                continue;
            }
            match places(address, profile) {
                Ok(names) => offers.extend(names.into_iter().map(|name| Offer {
                    name,
                    profile: profile.clone(),
                    taint,
                })),
                Err(reason) => {
                    let what = format!("profile {} of {what}", profile.name);
                    self.leave_out(what, reason);
                }
            }
        }
        let mut claimed = self.claimed(address, &gpu.profiles, Taint::Withdrawn);
        claimed.retain(|claimed| offers.iter().all(|offer| offer.name != claimed.name));
        offers.append(&mut claimed);
        self.gpus.push(PublishedGpu {
            address,
            gpu: gpu.clone(),
            compute_capability: self.node.compute_capabilities.get(&gpu.uuid).copied(),
            offers,
            is_usable: taint.is_none(),
        });
    }

    /// Keeps the devices of GPUs that the driver does not show. If the driver fails to read some GPU, a missing one
    /// counts as lost and keeps all devices; otherwise it is gone and keeps those with claims.
    fn keep_missing(&mut self) {
        let is_lost = !self.node.snapshot.unreadable.is_empty();
        for known in self.known.iter().filter(|_| is_lost) {
            if !self.seen.insert(known.address) {
                continue;
            }
            let stays = |o: &&Offer| {
                o.taint != Some(Taint::Withdrawn) || self.node.ledger.allocated.contains(&o.name)
            };
            let offers: Vec<Offer> = { known.offers.iter().filter(stays) }
                .map(|offer| Offer {
                    taint: Some(Taint::Unhealthy),
                    ..offer.clone()
                })
                .collect();
            if !offers.is_empty() {
                self.gpus.push(PublishedGpu {
                    offers,
                    is_usable: false,
                    ..known.clone()
                });
            }
        }
        let claimed = self.node.ledger.allocated.iter().map(DeviceName::gpu);
        let missing: BTreeSet<PciAddress> = claimed.filter(|a| !self.seen.contains(a)).collect();
        for address in missing {
            self.keep_claimed(address, None, Taint::Unhealthy);
        }
    }

    /// Keeps the devices with claims on a GPU, and no others.
    fn keep_claimed(&mut self, address: PciAddress, gpu: Option<&Gpu>, taint: Taint) {
        let known = self.known.iter().find(|known| known.address == address);
        let before = known.map(|known| &known.gpu);
        let mut gpu = gpu.or(before).cloned().unwrap_or_else(|| unknown(address));
        if gpu.profiles.is_empty() {
            gpu.profiles = before.map_or_else(Vec::new, |before| before.profiles.clone());
        }
        let offers = self.claimed(address, &gpu.profiles, taint);
        if offers.is_empty() {
            return;
        }
        if gpu.profiles.is_empty() {
            gpu.profiles = offers.iter().map(|o| o.profile.clone()).collect();
        }
        self.gpus.push(PublishedGpu {
            address,
            compute_capability: { self.node.compute_capabilities.get(&gpu.uuid).copied() }
                .or(known.and_then(|known| known.compute_capability)),
            gpu,
            offers,
            is_usable: false,
        });
    }

    /// Returns the devices with claims on a GPU. The name alone tells about a profile that the GPU does not offer.
    fn claimed(&self, address: PciAddress, profiles: &[Profile], taint: Taint) -> Vec<Offer> {
        let here = { self.node.ledger.allocated.iter() }.filter(|name| name.gpu() == address);
        let mut here: Vec<&DeviceName> = here.collect();
        here.sort_by_key(|name| name.to_string());
        let offer = |name: &DeviceName| Offer {
            profile: { profiles.iter().find(|p| *p.name == *name.profile()) }
                .cloned()
                .unwrap_or_else(|| by_name(name)),
            name: name.clone(),
            taint: Some(taint),
        };
        here.into_iter().map(offer).collect()
    }
}

/// Returns the names of all places of a profile.
fn places(address: PciAddress, profile: &Profile) -> Result<Vec<DeviceName>, String> {
    let known = profile.name.parse();
    let name = known.map_err(|_| "its name is malformed".to_owned())?;
    let named = |at: &Placement| DeviceName::new(address, Clone::clone(&name), *at);
    let names: Result<Vec<DeviceName>, _> = profile.placements.iter().map(named).collect();
    names.map_err(|e| e.reason())
}

/// Returns as much of a profile as the name of a device tells.
fn by_name(name: &DeviceName) -> Profile {
    Profile {
        name: name.profile().to_string(),
        id: u32::MAX,
        compute_slices: name.profile().gpu_slices,
        memory_mib: u64::from(name.profile().gigabytes) * 1024,
        max_instances: 1,
        placements: vec![name.placement()],
        ..Profile::default()
    }
}

fn unknown(address: PciAddress) -> Gpu {
    Gpu {
        index: u32::MAX,
        minor: u32::MAX,
        pci_bus_id: address.to_string(),
        mig: MigMode::Disabled,
        ..Gpu::default()
    }
}
