//! The devices in the status of a claim: pure, from the ledger's slices and the API's answer to what to write.

use crate::driver::NAME as DRIVER;
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use runmig_lease::store::{Held, LeaseState};
use serde_json::json;

/// The condition of a device whose slice containers can use.
const READY: &str = "Ready";

/// Returns the devices of this driver for the status of a claim. `held`: the claim's leases in the ledger. None if the
/// status has them already, or the claim has none.
pub(super) fn devices(
    found: &ResourceClaim,
    held: &[Held],
    node: &str,
    now: &Time,
) -> Option<Vec<AllocatedDeviceStatus>> {
    let status = found.status.as_ref()?;
    let results = status.allocation.as_ref()?.devices.as_ref()?;
    let is_allocated = |device: &AllocatedDeviceStatus| {
        results.results.iter().flatten().any(|result| {
            (&result.driver, &result.pool, &result.device)
                == (&device.driver, &device.pool, &device.device)
        })
    };
    let present = status.devices.as_deref().unwrap_or_default();
    let uid = found.metadata.uid.as_deref();
    let its = held
        .iter()
        .filter(|h| h.lease.claim().map(|c| c.uid.as_str()) == uid);
    let devices = its.filter_map(|held| device(held, node, now));
    let mut devices: Vec<AllocatedDeviceStatus> = devices.filter(is_allocated).collect();
    let mut is_new = false;
    for device in &mut devices {
        let key = |d: &AllocatedDeviceStatus| (d.driver.clone(), d.pool.clone(), d.device.clone());
        let before = present.iter().find(|before| key(before) == key(device));
        let since = before.and_then(ready_since);
        // The time of a condition is that of its last change.
        if let (Some(since), Some(conditions)) = (since, &mut device.conditions) {
            { conditions.iter_mut() }.for_each(|c| c.last_transition_time = since.clone());
        }
        is_new |= before != Some(device);
    }
    is_new.then_some(devices)
}

/// Returns the entry of a device whose slice is made.
fn device(held: &Held, node: &str, now: &Time) -> Option<AllocatedDeviceStatus> {
    let claim = held.lease.claim()?;
    let is_ready = held.lease.state == LeaseState::Ready;
    let slice = held.instance.slice().filter(|_| is_ready)?;
    let (gi, ci) = (slice.gpu_instance?, slice.compute_instance?);
    let (profile, placement) = (&slice.profile, slice.placement);
    // As `migctl list -o json` words them.
    let data = json!({
        "migUUID": slice.mig_uuid.as_ref()?,
        "gpuUUID": slice.gpu_uuid.as_str(),
        "profile": profile,
        "placement": {"start": placement.start, "size": placement.size},
        "gpuInstanceID": gi,
        "computeInstanceID": ci,
        "node": node,
    });
    Some(AllocatedDeviceStatus {
        driver: DRIVER.to_owned(),
        pool: claim.pool.clone(),
        device: claim.device.clone(),
        conditions: Some(vec![Condition {
            type_: READY.to_owned(),
            status: "True".to_owned(),
            reason: "SliceMade".to_owned(),
            message: format!("the slice {profile} at {placement} is ready"),
            last_transition_time: now.clone(),
            observed_generation: None,
        }]),
        data: Some(RawExtension(data)),
        network_data: None,
        share_id: None,
    })
}

fn ready_since(device: &AllocatedDeviceStatus) -> Option<Time> {
    let mut conditions = device.conditions.iter().flatten();
    let ready = conditions.find(|c| c.type_ == READY && c.status == "True")?;
    Some(ready.last_transition_time.clone())
}
