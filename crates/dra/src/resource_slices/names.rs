//! The names of devices, counters, pools and ResourceSlices: pure functions, and the inverse for devices.

use runmig_lease::error::{Context, Error, Result, printable};
use runmig_lease::framed::hex;
use runmig_lease::model::{Gpu, Placement, Profile, ProfileName, Snapshot};
use sha2::{Digest, Sha256};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The longest DNS label.
pub const MAX_LABEL: usize = 63;
/// The longest name of an object and of a pool.
pub const MAX_NAME: usize = 253;

/// The PCI address of a GPU. A reboot and a replaced card keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    domain: u32,
    bus: u32,
    device: u32,
    function: u32,
}

impl FromStr for PciAddress {
    type Err = Error;

    /// Parses NVML's form, `00000000:07:00.0`, or the kernel's, `0000:07:00.0`.
    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split([':', '.']).collect();
        PciAddress::of(&parts).ok_or_else(|| {
            let text = printable(text);
            Error::new(format!(
                "\"{text}\" is not a PCI address such as 0000:07:00.0"
            ))
        })
    }
}

impl PciAddress {
    fn of(parts: &[&str]) -> Option<PciAddress> {
        let [domain, bus, device, function] = parts else {
            return None;
        };
        let hex = |text: &str, digits: RangeInclusive<usize>, most: u32| {
            let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
            let number = u32::from_str_radix(text, 16).ok()?;
            (is_hex && digits.contains(&text.len()) && number <= most).then_some(number)
        };
        Some(PciAddress {
            domain: hex(domain, 4..=8, u32::MAX)?,
            bus: hex(bus, 2..=2, 0xff)?,
            device: hex(device, 2..=2, 0x1f)?,
            function: hex(function, 1..=1, 7)?,
        })
    }

    /// Returns the name of the GPU's counter set, and the first part of its devices' names.
    pub fn label(self) -> String {
        format!("gpu-{}", self.to_string().replace([':', '.'], "-"))
    }
}

/// Writes the kernel's form, which the attribute `resource.kubernetes.io/pciBusID` has too.
impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (domain, bus, device, function) = (self.domain, self.bus, self.device, self.function);
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// The name of a device: GPU, profile and place, as `gpu-0000-07-00-0-mig-1g-10gb-plus-me-4-1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceName {
    gpu: PciAddress,
    profile: ProfileName,
    placement: Placement,
}

impl DeviceName {
    /// Names a place.
    ///
    /// # Errors
    /// The name would be longer than a DNS label.
    pub fn new(gpu: PciAddress, profile: ProfileName, placement: Placement) -> Result<Self> {
        let name = DeviceName {
            gpu,
            profile,
            placement,
        };
        match name.to_string().len() {
            0..=MAX_LABEL => Ok(name),
            length => Err(Error::new(format!(
                "the device name {name} has {length} characters, more than {MAX_LABEL}"
            ))),
        }
    }

    /// Returns the PCI address of the GPU.
    pub fn gpu(&self) -> PciAddress {
        self.gpu
    }

    /// Returns the name of the profile.
    pub fn profile(&self) -> &ProfileName {
        &self.profile
    }

    /// Returns the memory slices.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Finds the GPU and the profile that the device names.
    ///
    /// # Errors
    /// The machine has no such GPU, profile or place. The error names the device.
    pub fn find<'s>(&self, snapshot: &'s Snapshot) -> Result<(&'s Gpu, &'s Profile)> {
        let is_it = |gpu: &&Gpu| gpu.pci_bus_id.parse().ok() == Some(self.gpu);
        let gpu = snapshot.gpus.iter().find(is_it).ok_or_else(|| {
            let why = format!("no GPU at PCI address {} answers", self.gpu);
            Error::new(why).hint("run nvidia-smi on the node to see its GPUs")
        });
        let profile = gpu.and_then(|gpu| {
            let offers =
                |p: &&Profile| *p.name == self.profile && p.placements.contains(&self.placement);
            let profile = gpu.profiles.iter().find(offers).ok_or_else(|| {
                let (profile, at) = (&self.profile, self.placement);
                let why = format!("GPU {} offers no {profile} at {at}", gpu.index);
                Error::new(why).hint("run migctl gpus on the node to see profiles and MIG modes")
            })?;
            Ok((gpu, profile))
        });
        profile.context(|| format!("find device {self}"))
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gpu, profile) = (self.gpu.label(), profile_label(&self.profile.to_string()));
        let Placement { start, size } = self.placement;
        write!(f, "{gpu}-mig-{profile}-{start}-{size}")
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    /// Parses exactly the names that `Display` writes.
    fn from_str(text: &str) -> Result<Self> {
        let name = parse(text).filter(|name| text.len() <= MAX_LABEL && name.to_string() == text);
        name.ok_or_else(|| {
            let why = "it does not have the form gpu-PCI-mig-PROFILE-START-SIZE";
            Error::new(why).hint("request devices of the driver gpu.runmig.dev by its classes")
        })
        .context(|| format!("parse the device name \"{}\"", printable(text)))
    }
}

fn parse(text: &str) -> Option<DeviceName> {
    let parts: Vec<&str> = text.strip_prefix("gpu-")?.split('-').collect();
    let (address, rest) = parts.split_at_checked(4)?;
    let ["mig", compute, memory, attributes @ .., start, size] = rest else {
        return None;
    };
    let mut profile = format!("{compute}.{memory}");
    for pair in attributes.chunks(2) {
        let [sign, word] = pair else { return None };
        let (_, sign) = SIGNS.iter().find(|(label, _)| label == sign)?;
        profile.push(*sign);
        profile.push_str(word);
    }
    Some(DeviceName {
        gpu: PciAddress::of(address)?,
        profile: profile.parse().ok()?,
        placement: Placement {
            start: start.parse().ok()?,
            size: size.parse().ok()?,
        },
    })
}

/// The signs in the attributes of a profile's name, and their words in a label.
const SIGNS: [(&str, char); 3] = [("plus", '+'), ("minus", '-'), ("dot", '.')];

/// Returns a profile's name as a part of a DNS label: `1g-24gb-plus-me-dot-all`.
pub fn profile_label(profile: &str) -> String {
    let (compute, rest) = profile.split_once('.').unwrap_or((profile, ""));
    let mut label = format!("{compute}-");
    for c in rest.chars() {
        match SIGNS.iter().find(|(_, sign)| *sign == c) {
            Some((word, _)) => label.extend(["-", word, "-"]),
            None => label.push(c),
        }
    }
    label
}

/// Returns the name of a node's pool. It differs from the node's name, by which other drivers name their pools:
/// Kubernetes 1.36 confuses the counters of pools with one name.
pub fn pool(node: &str) -> String {
    of_node(node, MAX_NAME)
}

/// Returns the name of the node's ResourceSlice with a part of the counter sets.
pub fn counter_slice(node: &str, part: usize) -> String {
    slice(node, "counters", part)
}

/// Returns the name of the node's ResourceSlice with a part of the devices. The scheduler searches the slices by
/// name, so these sort as their parts do.
pub fn device_slice(node: &str, part: usize) -> String {
    slice(node, "devices", part)
}

/// No node's name has the last dot's rest, so the slices of two nodes have different names.
fn slice(node: &str, kind: &str, part: usize) -> String {
    let suffix = format!(".{kind}-{part:03}");
    of_node(node, MAX_NAME - suffix.len()) + &suffix
}

/// Returns a name of at most `room` characters. A longer one is cut, and gets a hash and another beginning, so that
/// it cannot be another node's.
fn of_node(node: &str, room: usize) -> String {
    let whole = format!("runmig.{node}");
    if whole.len() <= room {
        return whole;
    }
    let hash = hex(&Sha256::digest(node.as_bytes())[..16]);
    let left = room.saturating_sub("runmig-long.-".len() + hash.len());
    let cut: String = node.chars().take(left).collect();
    let cut = cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("runmig-long.{cut}-{hash}")
}
