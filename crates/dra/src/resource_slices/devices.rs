//! The devices of a GPU: attributes, capacity and consumption. None of them tells the place, so no claim can
//! request one.

use super::counters::{self, Amounts};
use super::gpus::{Offer, PublishedGpu, Taint};
use super::node::Node;
use super::objects::{cut, quantities, quantity};
use k8s_openapi::api::resource::v1::{
    Device, DeviceAttribute, DeviceCapacity, DeviceCounterConsumption, DeviceTaint,
};
use std::collections::BTreeMap;

/// The longest value of an attribute, in bytes.
const MAX_VALUE: usize = 64;

/// Returns the device of an offer. `set` is the GPU's counter set, from which alone a device may consume.
pub(super) fn device(node: &Node<'_>, gpu: &PublishedGpu, offer: &Offer, set: &Amounts) -> Device {
    let (name, profile) = (offer.name.to_string(), &offer.profile);
    let taint = match node.sick.contains(&name) {
        true => Some(Taint::Unhealthy),
        false => offer.taint,
    };
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
    ]
    .map(|(name, amount)| {
        let capacity = DeviceCapacity {
            request_policy: None,
            value: quantity(amount),
        };
        (name.to_owned(), capacity)
    });
    Device {
        attributes: Some(attributes(gpu, offer, &node.snapshot.driver_version)),
        capacity: Some(capacity.into()),
        consumes_counters: Some(vec![DeviceCounterConsumption {
            counter_set: gpu.address.label(),
            counters: quantities(&consumes),
        }]),
        taints: taint.map(|taint| vec![self::taint(taint, node.evicted.contains(&name))]),
        name,
        ..Device::default()
    }
}

fn taint(taint: Taint, is_evicted: bool) -> DeviceTaint {
    let (key, may_evict) = match taint {
        Taint::Unhealthy => ("runmig.dev/unhealthy", true),
        Taint::Cordoned => ("runmig.dev/cordoned", true),
        Taint::Withdrawn => ("runmig.dev/withdrawn", false),
    };
    let effect = match may_evict && is_evicted {
        true => "NoExecute",
        false => "NoSchedule",
    };
    DeviceTaint {
        effect: effect.to_owned(),
        key: key.to_owned(),
        ..DeviceTaint::default()
    }
}

/// The names are NVIDIA's, so that a manifest moves by a change of domain and class. One without a domain is in the
/// driver's.
fn attributes(
    gpu: &PublishedGpu,
    offer: &Offer,
    driver_version: &str,
) -> BTreeMap<String, DeviceAttribute> {
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
        let capability = version(format!("{major}.{minor}.0"));
        all.insert("cudaComputeCapability", capability);
        all.extend(architecture(major, minor).map(|name| ("architecture", text(name))));
    }
    all.extend(semantic(driver_version).map(|its| ("driverVersion", version(its))));
    let owned = |(name, value): (&str, _)| (name.to_owned(), value);
    all.into_iter().map(owned).collect()
}

fn text(value: &str) -> DeviceAttribute {
    DeviceAttribute {
        string: Some(cut(value, MAX_VALUE)),
        ..DeviceAttribute::default()
    }
}

fn version(version: String) -> DeviceAttribute {
    DeviceAttribute {
        version: Some(version),
        ..DeviceAttribute::default()
    }
}

/// Returns a driver's version by the rules of semver.org, which know neither zeros at the front nor two parts.
fn semantic(text: &str) -> Option<String> {
    let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    let mut parts = parts.filter(|parts| parts.len() <= 3)?;
    parts.resize(3, 0);
    let [major, minor, patch] = parts[..] else {
        return None;
    };
    Some(format!("{major}.{minor}.{patch}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_illness_evicts() {
        for (of, is_evicted, key, effect) in testkit::rows! {
            Taint::Unhealthy, false, "runmig.dev/unhealthy" => "NoSchedule";
            Taint::Unhealthy, true, "runmig.dev/unhealthy" => "NoExecute";
            Taint::Cordoned, false, "runmig.dev/cordoned" => "NoSchedule";
            Taint::Cordoned, true, "runmig.dev/cordoned" => "NoExecute";
            Taint::Withdrawn, true, "runmig.dev/withdrawn" => "NoSchedule";
        } {
            let told = taint(of, is_evicted);
            assert_eq!((told.key.as_str(), told.effect.as_str()), (key, effect));
        }
    }
}
