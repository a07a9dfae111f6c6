//! The devices in the status of a claim: pure, from the ledger's slices and the API's answer to what to write.

use crate::driver::NAME as DRIVER;
use crate::health::{DeviceHealth, Health};
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use runmig_lease::LeaseView;
use runmig_lease::store::{Held, LeaseState};

/// The condition of a device whose slice containers can use.
const READY: &str = "Ready";

/// Returns the devices of this driver for the status of a claim. `held`: the claim's leases in the ledger. `healths`: the
/// devices of the last look. None if the status has them already, or the claim has none.
pub(super) fn devices(
    found: &ResourceClaim,
    held: &[Held],
    healths: &[DeviceHealth],
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
    let devices = its.filter_map(|held| device(held, node));
    let mut devices: Vec<AllocatedDeviceStatus> = devices.filter(is_allocated).collect();
    let mut is_new = false;
    for device in &mut devices {
        let key = |d: &AllocatedDeviceStatus| (d.driver.clone(), d.pool.clone(), d.device.clone());
        let before = present.iter().find(|before| key(before) == key(device));
        let mut its = healths
            .iter()
            .filter(|of| Some(of.claim.uid.as_str()) == uid);
        let its =
            its.find(|of| (&of.claim.pool, &of.claim.device) == (&device.pool, &device.device));
        let ready = ready(its.map(|of| &of.health), device, before, now);
        device.conditions = Some(vec![ready]);
        is_new |= before != Some(device);
    }
    is_new.then_some(devices)
}

/// Returns the entry of a device whose slice is made, without its condition.
fn device(held: &Held, node: &str) -> Option<AllocatedDeviceStatus> {
    let claim = held.lease.claim()?;
    let is_ready = held.lease.state == LeaseState::Ready;
    let slice = held.instance.slice().filter(|_| is_ready)?;
    if slice.gpu_instance.is_none() || slice.compute_instance.is_none() || slice.mig_uuid.is_none()
    {
        return None;
    }
    let view = LeaseView::default().on(&held.instance);
    let mut data = serde_json::to_value(view).ok()?;
    data["node"] = node.into();
    Some(AllocatedDeviceStatus {
        driver: DRIVER.to_owned(),
        pool: claim.pool.clone(),
        device: claim.device.clone(),
        data: Some(RawExtension(data)),
        ..AllocatedDeviceStatus::default()
    })
}

/// Returns the condition of a device. Without a word of the last look, a slice that is the same keeps its condition, and
/// a new one is ready.
fn ready(
    health: Option<&Health>,
    device: &AllocatedDeviceStatus,
    before: Option<&AllocatedDeviceStatus>,
    now: &Time,
) -> Condition {
    let was = before.and_then(|before| {
        let mut conditions = before.conditions.iter().flatten();
        conditions.find(|c| c.type_ == READY)
    });
    let is_same = before.is_some_and(|before| before.data == device.data);
    let (status, reason, message) = match (health, was) {
        (Some(Health::Unhealthy(illness)), _) => ("False", illness.kind, illness.why.as_str()),
        (None | Some(Health::Unknown), Some(was)) if is_same => return was.clone(),
        _ => ("True", "SliceMade", "the slice is made and works"),
    };
    // The time of a condition is that of its last change.
    let since = was.filter(|was| was.status == status);
    Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since.map_or(now, |was| &was.last_transition_time).clone(),
        observed_generation: None,
    }
}
