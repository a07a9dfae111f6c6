//! The devices of a GPU: attributes, capacity and consumption. None of them tells the place, so no claim can
//! request one.

use super::counters;
use super::gpus::{Offer, PublishedGpu};
use super::types::{Amounts, Attribute, Device};
use std::collections::BTreeMap;

/// The longest value of an attribute, in bytes.
const MAX_VALUE: usize = 64;

/// Returns the device of an offer. `set` is the GPU's counter set, from which alone a device may consume.
pub(super) fn device(
    gpu: &PublishedGpu,
    offer: &Offer,
    driver_version: &str,
    set: &Amounts,
) -> Device {
    let profile = &offer.profile;
    let mut consumes = counters::consumption(profile, offer.name.placement());
    consumes.retain(|counter, _| set.contains_key(counter));
    let capacity = [
        ("memory", profile.memory_mib << 20),
        ("multiprocessors", profile.multiprocessors.into()),
        ("computeSlices", profile.compute_slices.into()),
        ("copyEngines", profile.copy_engines.into()),
        ("decoders", profile.decoders.into()),
        ("encoders", profile.encoders.into()),
        ("jpegEngines", profile.jpegs.into()),
        ("ofaEngines", profile.ofas.into()),
    ];
    Device {
        name: offer.name.clone(),
        attributes: attributes(gpu, offer, driver_version),
        capacity: capacity.into(),
        counter_set: gpu.address.label(),
        consumes,
        taint: offer.taint.clone(),
    }
}

/// The names are NVIDIA's, so that a manifest moves by a change of domain and class.
fn attributes(
    gpu: &PublishedGpu,
    offer: &Offer,
    driver_version: &str,
) -> BTreeMap<&'static str, Attribute> {
    let mut all = BTreeMap::from([
        ("type", text("mig")),
        ("profile", text(&offer.profile.name)),
        ("parentUUID", text(gpu.gpu.uuid.as_str())),
        ("productName", text(&gpu.gpu.name)),
        (
            "resource.kubernetes.io/pciBusID",
            text(&gpu.address.to_string()),
        ),
    ]);
    if let Some((major, minor)) = gpu.compute_capability {
        let version = Attribute::Version(format!("{major}.{minor}.0"));
        all.insert("cudaComputeCapability", version);
        all.extend(architecture(major, minor).map(|name| ("architecture", text(name))));
    }
    all.extend(version(driver_version).map(|version| ("driverVersion", version)));
    all
}

fn text(value: &str) -> Attribute {
    let ends = (0..=MAX_VALUE.min(value.len())).rev();
    let end = ends.into_iter().find(|at| value.is_char_boundary(*at));
    Attribute::Text(value[..end.unwrap_or(0)].to_owned())
}

/// Returns a driver's version by the rules of semver.org, which know neither zeros at the front nor two parts.
fn version(text: &str) -> Option<Attribute> {
    let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    let mut parts = parts.filter(|parts| parts.len() <= 3)?;
    parts.resize(3, 0);
    let [major, minor, patch] = parts[..] else {
        return None;
    };
    Some(Attribute::Version(format!("{major}.{minor}.{patch}")))
}

/// Returns the architecture as NVIDIA's driver names it.
fn architecture(major: u32, minor: u32) -> Option<&'static str> {
    match (major, minor) {
        (8, 0..=8) => Some("Ampere"),
        (8, _) => Some("Ada Lovelace"),
        (9, _) => Some("Hopper"),
        (10..=12, _) => Some("Blackwell"),
        _ => None,
    }
}
