//! Limits of the API: sizes of ResourceSlices, and what a device tells.

use crate::names::is_label;
use crate::scheduler::Scheduler;
use crate::world::{Card, World};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use nvml_sim::engine::Model;
use runmig_dra::resource_slices::objects::quantity;
use runmig_dra::resource_slices::{
    DeviceName, Layout, MAX_COUNTERS, MAX_DEVICES, MAX_SETS, Published, lay_out, pool,
};
use std::collections::HashSet;
use testkit::prelude::*;

fn devices(layout: &Layout) -> Vec<&Device> {
    let slices = layout.slices.iter();
    slices
        .flat_map(|slice| slice.spec.devices.iter().flatten())
        .collect()
}

fn profile(device: &Device) -> String {
    let name: DeviceName = device.name.parse().unwrap();
    name.profile().to_string()
}

/// The profiles of devices, each where it begins.
fn profiles<'d>(devices: impl IntoIterator<Item = &'d Device>) -> Vec<String> {
    let mut names: Vec<String> = devices.into_iter().map(profile).collect();
    names.dedup();
    names
}

/// Sixteen GPUs of all models, at long addresses, on a node with the longest name.
#[test]
fn keeps_limits_of_the_api() {
    let models: Vec<Card> = { Model::with_mig().iter().cycle() }
        .take(16)
        .map(|model| Card(model, true))
        .collect();
    let mut world = World::new(&models);
    for gpu in &mut world.snapshot.gpus {
        gpu.pci_bus_id.replace_range(..8, "0001FFFF");
    }
    let name = format!("{}n", "n".repeat(62) + ".").repeat(3) + &"n".repeat(61);
    let node = runmig_dra::resource_slices::Node {
        name: &name[..253.min(name.len())],
        ..world.node()
    };
    let layout = lay_out(&node, &Published::default());
    assert!(layout.left_out.is_empty(), "{:?}", layout.left_out);
    let slices = &layout.slices;
    let mut sets = BTreeSet::new();
    for slice in slices {
        let (object, spec) = (slice.metadata.name.as_deref().unwrap(), &slice.spec);
        assert!(object.len() <= 253, "{object}");
        assert_eq!(spec.pool.name, pool(node.name));
        assert_eq!(spec.node_name.as_deref(), Some(node.name));
        let counts = (spec.pool.generation, spec.pool.resource_slice_count);
        assert_eq!(counts, (1, slices.len() as i64));
        match (&spec.shared_counters, &spec.devices) {
            (Some(counters), None) => {
                assert!((1..=MAX_SETS).contains(&counters.len()));
                for set in counters {
                    assert!(set.counters.len() <= MAX_COUNTERS, "{set:?}");
                    sets.insert(&set.name);
                }
            }
            (None, Some(devices)) => assert!((1..=MAX_DEVICES).contains(&devices.len())),
            both => panic!("{both:?}"),
        }
    }
    assert_eq!(sets.len(), 16);
    assert!(slices.is_sorted_by_key(|slice| slice.metadata.name.as_deref()));
    for device in devices(&layout) {
        assert!(is_label(&device.name), "{}", device.name);
        let attributes = device.attributes.as_ref().unwrap().len();
        assert!(attributes + device.capacity.as_ref().unwrap().len() <= 32);
    }
    let scheduler = Scheduler::new(slices, &HashSet::new());
    for device in scheduler.devices() {
        assert!(scheduler.fits(device), "{device:?}");
        assert!(device.consumes.values().all(|n| *n > 0), "{device:?}");
    }
}

/// The layout that docs/dra-scheduling.md gives for eight A100.
#[test]
fn groups_devices_by_profile() {
    let world = World::of("a100-80gb", 8);
    let layout = world.lay_out(&Published::default());
    let told = |slice: &ResourceSlice| match &slice.spec.shared_counters {
        Some(sets) => vec![format!("{} sets", sets.len())],
        None => profiles(slice.spec.devices.iter().flatten()),
    };
    let all: Vec<String> = layout.slices.iter().map(|s| told(s).join(" ")).collect();
    let expected = [
        "8 sets",
        "1g.10gb",
        "1g.20gb 2g.20gb",
        "3g.40gb 4g.40gb 7g.80gb",
        "1g.10gb+me",
    ];
    assert_eq!(all, expected);
    assert_eq!(devices(&layout).len(), 200);
}

/// A profile with more places than a ResourceSlice holds gets several, with GPUs of their own.
#[test]
fn splits_profile_by_gpu() {
    let world = World::of("a100-80gb", 12);
    let layout = world.lay_out(&Published::default());
    let mut parts: Vec<BTreeSet<String>> = Vec::new();
    for slice in &layout.slices {
        let devices = slice.spec.devices.iter().flatten();
        let ours = devices.filter(|device| profile(device) == "1g.10gb");
        let gpus = ours.map(|device| device.name.split("-mig-").next().unwrap().to_owned());
        parts.push(gpus.collect());
    }
    parts.retain(|gpus| !gpus.is_empty());
    assert_eq!(parts.iter().map(BTreeSet::len).collect::<Vec<_>>(), [9, 3]);
    assert!(parts[0].is_disjoint(&parts[1]));
}

#[test]
fn small_profiles_come_first() {
    let world = World::of("rtx-pro-6000", 1);
    let layout = world.lay_out(&Published::default());
    let names = profiles(devices(&layout)).join(" ");
    let expected = "1g.24gb 1g.24gb+gfx 1g.24gb-me 2g.48gb 2g.48gb+gfx 2g.48gb-me 4g.96gb 4g.96gb+gfx \
                    1g.24gb+me 1g.24gb+me.all 2g.48gb+me.all";
    assert_eq!(names, expected);
}

#[test]
fn device_tells_all_but_place() {
    let world = World::of("h100-80gb", 1);
    let layout = world.lay_out(&Published::default());
    let mut seen = BTreeMap::new();
    for device in devices(&layout) {
        let told = (&device.attributes, &device.capacity);
        let first = *seen.entry(profile(device)).or_insert(told);
        assert_eq!(first, told, "{}", device.name);
    }
    let (attributes, capacity) = seen["2g.20gb"];
    let expected = json!({
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "570.86.5"},
        "parentUUID": {"string": "GPU-0"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "profile": {"string": "2g.20gb"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:07:00.0"},
        "type": {"string": "mig"},
    });
    assert_eq!(json!(attributes), expected);
    let expected = json!({
        "computeSlices": {"value": "2"},
        "copyEngines": {"value": "2"},
        "decoders": {"value": "2"},
        "encoders": {"value": "0"},
        "jpegEngines": {"value": "2"},
        "memory": {"value": "20096Mi"},
        "multiprocessors": {"value": "32"},
        "ofaEngines": {"value": "0"},
    });
    assert_eq!(json!(capacity), expected);
}

#[test]
fn long_values_are_cut() {
    let mut world = World::of("a30", 1);
    world.snapshot.gpus[0].name = "ü".repeat(40);
    world.snapshot.driver_version = "615.01-beta".to_owned();
    let layout = world.lay_out(&Published::default());
    let attributes = json!(devices(&layout)[0].attributes);
    assert_eq!(attributes["productName"]["string"], "ü".repeat(32));
    assert_eq!(attributes["driverVersion"], Value::Null);
}

#[test]
fn quantities_are_canonical() {
    let all = [0, 7, 1023, 1024, 9728 << 20, 80 << 30, (80 << 30) + 1].map(|n| quantity(n).0);
    assert_eq!(all.join(" "), "0 7 1023 1Ki 9728Mi 80Gi 85899345921");
}
