//! Annotations that bring devices behind our edit's back, for what reads them after it.

use super::document::{Document, get};
use crate::error::{Error, Result};
use serde_json::Value;

/// nvidia-container-runtime adds the devices that such an annotation names, after our edit.
const CDI_PREFIX: &str = "cdi.k8s.io/";

/// runc and crun set what follows as a property of the container's unit, last: with
/// `DevicePolicy` systemd would open every device again, at the next reload.
const SYSTEMD_DEVICES: &str = "org.systemd.property.Device";

pub fn check(document: &Document) -> Result<()> {
    let Some(Value::Object(annotations)) = get(&document.root, "annotations") else {
        return Ok(());
    };
    for (key, value) in annotations {
        if key.starts_with(SYSTEMD_DEVICES) {
            return Err(Error::new(format!(
                "annotation {key} changes which devices the container can open"
            ))
            .hint("leave it out: a container with a slice gets the devices of its slice"));
        }
        let devices = value.as_str().unwrap_or_default();
        if key.starts_with(CDI_PREFIX) && devices.split(',').any(of_nvidia) {
            return Err(Error::new(format!(
                "annotation {key} asks for {devices} beside the slice"
            ))
            .hint("ask for a slice or for CDI devices, not for both"));
        }
    }
    Ok(())
}

/// `nvidia.com/gpu=0`, `management.nvidia.com/gpu=all`
fn of_nvidia(device: &str) -> bool {
    let vendor = device.trim().split('/').next().unwrap_or_default();
    vendor == "nvidia.com" || vendor.ends_with(".nvidia.com")
}
