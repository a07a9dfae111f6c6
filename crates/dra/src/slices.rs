//! The ResourceSlices of this node: pure, from the devices to the objects in the API.

use crate::devices::Device;
use crate::driver;
use k8s_openapi::api::resource::v1::{
    Device as ApiDevice, DeviceAttribute, DeviceCapacity, ResourcePool, ResourceSlice,
    ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// Returns the ResourceSlices of a node.
pub(crate) fn slices(node: &str, devices: &[Device]) -> Vec<ResourceSlice> {
    let devices: Vec<ApiDevice> = devices.iter().map(device).collect();
    vec![ResourceSlice {
        metadata: ObjectMeta {
            name: Some(format!("runmig.{node}")),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            devices: Some(devices),
            driver: driver::NAME.to_owned(),
            node_name: Some(node.to_owned()),
            pool: ResourcePool {
                generation: 1,
                name: driver::pool(node),
                resource_slice_count: 1,
            },
            ..ResourceSliceSpec::default()
        },
    }]
}

fn device(device: &Device) -> ApiDevice {
    let text = |value: &str| DeviceAttribute {
        string: Some(value.to_owned()),
        ..DeviceAttribute::default()
    };
    let attributes = BTreeMap::from([
        ("profile".to_owned(), text(&device.place.profile)),
        ("parentUUID".to_owned(), text(device.place.gpu.as_str())),
        ("productName".to_owned(), text(&device.model)),
    ]);
    let memory = DeviceCapacity {
        request_policy: None,
        value: Quantity(format!("{}Mi", device.memory_mib)),
    };
    ApiDevice {
        name: device.name.clone(),
        attributes: Some(attributes),
        capacity: Some(BTreeMap::from([("memory".to_owned(), memory)])),
        ..ApiDevice::default()
    }
}
