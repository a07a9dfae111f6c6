//! Refuses annotations by which a program that reads config.json after runmig would add devices.

use super::document::{Document, get_mut, wrong_kind};
use runmig_lease::error::{Error, Result};
use runmig_lease::request::DeviceRequest;

/// The domain of CDI keys: keys of this domain and below it name CDI devices. The prefix is a setting of
/// nvidia-container-runtime: `cdi.k8s.io/` by default, `nvidia.cdi.k8s.io/` under NVIDIA's operator.
const CDI_DOMAIN: &str = "cdi.k8s.io";

/// The prefix of systemd's device properties. runc and crun set them on the container's unit, last. With
/// `DevicePolicy` systemd would open every device again, at the next reload.
const SYSTEMD_DEVICES: &str = "org.systemd.property.Device";

/// Checks the annotations, and takes out the names of devices by which the container asks. The kubelet names them so.
pub fn apply(document: &mut Document, asked: &[DeviceRequest]) -> Result<()> {
    let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
    let is_asked = |device: &&str| asked.contains(&device.trim().replace(':', "of"));
    let Some(annotations) = get_mut(&mut document.root, "annotations") else {
        return Ok(());
    };
    let annotations = annotations
        .as_object_mut()
        .ok_or_else(|| wrong_kind("annotations", "object"))?;
    annotations.retain(|_, value| {
        let devices = value.as_str().unwrap_or_default();
        asked.is_empty() || !devices.split(',').all(|device| is_asked(&device))
    });
    for (key, value) in annotations {
        if key.starts_with(SYSTEMD_DEVICES) {
            return Err(Error::new(format!(
                "annotation {key} changes which devices the container can open"
            ))
            .hint("leave it out: runmig gives the container the devices of its GPU"));
        }
        let devices = value
            .as_str()
            .ok_or_else(|| wrong_kind(&format!("annotation {key}"), "string"))?;
        if devices.split(',').any(|device| brings_gpus(key, device)) {
            return Err(Error::new(format!(
                "annotation {key} asks for {devices} beside what the container asks of runmig"
            ))
            .hint("ask by one of the two, not by both"));
        }
    }
    Ok(())
}

/// Returns whether an annotation asks for a GPU. Any key can carry a device of runmig's or NVIDIA's vendor,
/// since the key's prefix is configured. nvidia-container-runtime takes a name without a vendor (`all`,
/// `0`, even an empty one) for a device of NVIDIA's.
fn brings_gpus(key: &str, device: &str) -> bool {
    match vendor(device.trim()) {
        Some(vendor) => is_of_gpus(vendor),
        None => {
            let domain = key.split('/').next().unwrap_or_default();
            is_or_below(domain, CDI_DOMAIN)
        }
    }
}

/// Returns the vendor of `vendor/class=name`, as CDI's library splits it.
fn vendor(device: &str) -> Option<&str> {
    let (kind, _) = device.split_once('=')?;
    let (vendor, class) = kind.split_once('/')?;
    let is_name = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        !text.is_empty() && text.chars().all(plain)
    };
    (is_name(vendor) && is_name(class)).then_some(vendor)
}

/// Returns whether the vendor is NVIDIA or runmig, as in `nvidia.com/gpu=0`,
/// `management.nvidia.com/gpu=all`, `runmig.dev/slice=1`.
fn is_of_gpus(vendor: &str) -> bool {
    let vendor = vendor.to_ascii_lowercase();
    is_or_below(&vendor, "nvidia.com") || vendor.split('.').any(|label| label == "runmig")
}

fn is_or_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain)
        .is_some_and(|above| above.is_empty() || above.ends_with('.'))
}
