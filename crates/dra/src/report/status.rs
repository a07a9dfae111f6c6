//! The devices in the status of a claim: pure, from the ledger's slices and the API's answer to what to write.

use crate::health::{DeviceHealth, Health};
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use runmig_lease::LeaseView;
use runmig_lease::programs::DRIVER;
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
    let mut is_new = false;
    let device = |held: &Held| {
        let its = held.lease.claim();
        let claim = its.filter(|c| Some(&c.uid) == found.metadata.uid.as_ref())?;
        let is_it = |driver: &str, pool: &str, device: &str| {
            (driver, pool, device) == (DRIVER, claim.pool.as_str(), claim.device.as_str())
        };
        let mut allocated = results.results.iter().flatten();
        allocated.find(|r| is_it(&r.driver, &r.pool, &r.device))?;
        let mut present = status.devices.iter().flatten();
        let before = present.find(|d| is_it(&d.driver, &d.pool, &d.device));
        let mut device = AllocatedDeviceStatus {
            driver: DRIVER.to_owned(),
            pool: claim.pool.clone(),
            device: claim.device.clone(),
            data: Some(data(held, node)?),
            ..AllocatedDeviceStatus::default()
        };
        let health = healths.iter().find(|of| of.claim.is(claim));
        let ready = ready(health.map(|of| &of.health), &device, before, now);
        device.conditions = Some(vec![ready]);
        is_new |= before != Some(&device);
        Some(device)
    };
    let devices = held.iter().filter_map(device).collect();
    is_new.then_some(devices)
}

/// Returns what the status tells of a slice that is made.
fn data(held: &Held, node: &str) -> Option<RawExtension> {
    let is_ready = held.lease.state == LeaseState::Ready;
    let slice = held.instance.slice().filter(|_| is_ready)?;
    slice.gpu_instance.and(slice.compute_instance)?;
    slice.mig_uuid.as_ref()?;
    let view = LeaseView::default().on(&held.instance);
    let mut data = serde_json::to_value(view).ok()?;
    data["node"] = node.into();
    Some(RawExtension(data))
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
