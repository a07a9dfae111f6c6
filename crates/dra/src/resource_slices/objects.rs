//! The ResourceSlices of this node: pure, from the layout to the objects in the API, and back as far as the next layout
//! needs it.

use crate::driver;
use crate::resource_slices::{
    Amounts, Attribute, Content, CounterSet, Device, Published, PublishedSlice, Taint, quantity,
};
use k8s_openapi::api::resource::v1::{
    Counter, CounterSet as ApiCounterSet, Device as ApiDevice, DeviceAttribute, DeviceCapacity,
    DeviceCounterConsumption, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the object of a ResourceSlice. Kubernetes evicts the pods with a device in `evicted`, if it is unhealthy or cordoned.
pub fn resource_slice(slice: &PublishedSlice, evicted: &BTreeSet<String>) -> ResourceSlice {
    let device = |device: &Device| self::device(device, evicted);
    let (devices, shared_counters) = match &slice.content {
        Content::Devices(devices) => (Some(devices.iter().map(device).collect()), None),
        Content::Counters(sets) => (None, Some(sets.iter().map(counter_set).collect())),
    };
    ResourceSlice {
        metadata: ObjectMeta {
            name: Some(slice.name.clone()),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            devices,
            shared_counters,
            driver: driver::NAME.to_owned(),
            node_name: Some(slice.node.clone()),
            pool: ResourcePool {
                generation: slice.generation,
                name: slice.pool.clone(),
                resource_slice_count: slice.slice_count,
            },
            ..ResourceSliceSpec::default()
        },
    }
}

/// A ResourceSlice for the API, as text: it takes a fifth of the object's memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Wanted {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Wanted {
    /// Returns the text of a ResourceSlice.
    pub fn of(slice: &ResourceSlice) -> Wanted {
        Wanted {
            name: slice.metadata.name.clone().unwrap_or_default(),
            text: serde_json::to_string(slice).unwrap_or_default(),
        }
    }
}

fn counter_set(set: &CounterSet) -> ApiCounterSet {
    ApiCounterSet {
        name: set.name.clone(),
        counters: counters(&set.counters),
    }
}

fn counters(amounts: &Amounts) -> BTreeMap<String, Counter> {
    let counter = |(name, amount): (&String, &u64)| {
        let value = Quantity(quantity(*amount));
        (name.clone(), Counter { value })
    };
    amounts.iter().map(counter).collect()
}

fn device(device: &Device, evicted: &BTreeSet<String>) -> ApiDevice {
    let name = device.name.to_string();
    let taint = device
        .taint
        .as_ref()
        .map(|taint| vec![self::taint(taint, evicted.contains(&name))]);
    let attributes = device.attributes.iter().map(|(name, value)| {
        let mut attribute = DeviceAttribute::default();
        match value {
            Attribute::Text(text) => attribute.string = Some(text.clone()),
            Attribute::Version(version) => attribute.version = Some(version.clone()),
        }
        ((*name).to_owned(), attribute)
    });
    let capacity = device.capacity.iter().map(|(name, amount)| {
        let capacity = DeviceCapacity {
            request_policy: None,
            value: Quantity(quantity(*amount)),
        };
        ((*name).to_owned(), capacity)
    });
    ApiDevice {
        name,
        attributes: Some(attributes.collect()),
        capacity: Some(capacity.collect()),
        consumes_counters: Some(vec![DeviceCounterConsumption {
            counter_set: device.counter_set.clone(),
            counters: counters(&device.consumes),
        }]),
        taints: taint,
        ..ApiDevice::default()
    }
}

fn taint(taint: &Taint, is_evicted: bool) -> DeviceTaint {
    let (key, effect) = match taint {
        Taint::Unhealthy(_) if is_evicted => ("runmig.dev/unhealthy", "NoExecute"),
        Taint::Unhealthy(_) => ("runmig.dev/unhealthy", "NoSchedule"),
        Taint::Cordoned(_) if is_evicted => ("runmig.dev/cordoned", "NoExecute"),
        Taint::Cordoned(_) => ("runmig.dev/cordoned", "NoSchedule"),
        Taint::Withdrawn(_) => ("runmig.dev/withdrawn", "NoSchedule"),
    };
    DeviceTaint {
        effect: effect.to_owned(),
        key: key.to_owned(),
        time_added: None,
        value: None,
    }
}

/// The taints of each device that has some, with their times.
pub(crate) type Times = BTreeMap<String, Vec<DeviceTaint>>;

/// Returns the taints of a ResourceSlice in the API.
pub(crate) fn times(present: &ResourceSlice) -> Times {
    let devices = present.spec.devices.iter().flatten();
    devices
        .filter_map(|device| Some((device.name.clone(), device.taints.clone()?)))
        .collect()
}

/// Keeps the times of the taints that are in the API already: a pod may tolerate one for a time.
pub(crate) fn keep_times(slice: &mut ResourceSlice, present: &Times) {
    for device in slice.spec.devices.iter_mut().flatten() {
        let before = present
            .get(&device.name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        for taint in device.taints.iter_mut().flatten() {
            let is_same = |b: &&DeviceTaint| (&b.key, &b.effect) == (&taint.key, &taint.effect);
            taint.time_added = before
                .iter()
                .find(is_same)
                .and_then(|b| b.time_added.clone());
        }
    }
}

/// Returns what the next layout needs of the ResourceSlices that an earlier process wrote: their generation, their
/// members and the order of those.
pub(crate) fn earlier(slices: &[ResourceSlice]) -> Published {
    let slices = slices.iter().map(|slice| {
        let spec = &slice.spec;
        let content = match &spec.shared_counters {
            Some(sets) => Content::Counters(sets.iter().map(|set| named_set(&set.name)).collect()),
            None => {
                let devices = spec.devices.iter().flatten();
                let names = devices.filter_map(|device| device.name.parse().ok());
                let device = |name| Device {
                    name,
                    attributes: BTreeMap::new(),
                    capacity: BTreeMap::new(),
                    counter_set: String::new(),
                    consumes: Amounts::new(),
                    taint: None,
                };
                Content::Devices(names.map(device).collect())
            }
        };
        PublishedSlice {
            name: slice.metadata.name.clone().unwrap_or_default(),
            pool: spec.pool.name.clone(),
            node: spec.node_name.clone().unwrap_or_default(),
            generation: spec.pool.generation,
            slice_count: spec.pool.resource_slice_count,
            content,
        }
    });
    Published {
        slices: slices.collect(),
        gpus: Vec::new(),
    }
}

fn named_set(name: &str) -> CounterSet {
    CounterSet {
        name: name.to_owned(),
        counters: Amounts::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tainted(effect: &str, time: Option<&str>) -> ResourceSlice {
        let taint = json!({"key": "runmig.dev/unhealthy", "effect": effect, "timeAdded": time});
        let slice = json!({
            "metadata": {"name": "s"},
            "spec": {
                "driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a", "taints": [taint]}, {"name": "b"}],
            },
        });
        serde_json::from_value(slice).unwrap()
    }

    #[test]
    fn taint_keeps_its_time() {
        let time = Some("2026-01-01T00:00:00Z");
        let present = tainted("NoSchedule", time);
        let mut next = tainted("NoSchedule", None);
        keep_times(&mut next, &times(&present));
        assert_eq!(next, present);
        let mut harder = tainted("NoExecute", None);
        keep_times(&mut harder, &times(&present));
        assert_eq!(harder, tainted("NoExecute", None));
    }

    #[test]
    fn lasting_illness_evicts() {
        let effect = |taint: &Taint, is_evicted| super::taint(taint, is_evicted).effect;
        let sick = Taint::Unhealthy("lost".to_owned());
        assert_eq!(effect(&sick, false), "NoSchedule");
        assert_eq!(effect(&sick, true), "NoExecute");
        let cordoned = Taint::Cordoned("cordoned".to_owned());
        assert_eq!(effect(&cordoned, false), "NoSchedule");
        assert_eq!(effect(&cordoned, true), "NoExecute");
        assert_eq!(super::taint(&cordoned, false).key, "runmig.dev/cordoned");
        assert_eq!(
            effect(&Taint::Withdrawn("policy".to_owned()), true),
            "NoSchedule"
        );
    }
}
