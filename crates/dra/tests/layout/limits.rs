//! Limits of the API: sizes of ResourceSlices, and what a device tells.

use crate::world::{Card, World};
use nvml_sim::engine::Model;
use runmig_dra::resource_slices::{
    Attribute, Content, Device, Layout, MAX_COUNTERS, MAX_DEVICES, MAX_SETS, Published, lay_out,
    pool, quantity,
};
use std::collections::{BTreeMap, BTreeSet};

fn devices(layout: &Layout) -> Vec<&Device> {
    let slices = layout.published.slices.iter();
    slices
        .flat_map(|slice| match &slice.content {
            Content::Devices(devices) => devices.iter().collect::<Vec<_>>(),
            Content::Counters(_) => Vec::new(),
        })
        .collect()
}

/// Sixteen GPUs of all models on a node with the longest name.
#[test]
fn keeps_limits_of_the_api() {
    let models: Vec<Card> = { Model::with_mig().iter().cycle() }
        .take(16)
        .map(|model| Card(model, true))
        .collect();
    let world = World::new(&models);
    let name = format!("{}n", "n".repeat(62) + ".").repeat(3) + &"n".repeat(61);
    let node = runmig_dra::resource_slices::Node {
        name: &name[..253.min(name.len())],
        ..world.node()
    };
    let layout = lay_out(&node, &Published::default());
    assert!(layout.left_out.is_empty(), "{:?}", layout.left_out);
    let slices = &layout.published.slices;
    let mut sets = BTreeMap::new();
    for slice in slices {
        assert!(slice.name.len() <= 253, "{}", slice.name);
        assert_eq!(slice.pool, pool(node.name));
        assert_eq!(slice.node, node.name);
        assert_eq!(
            (slice.generation, slice.slice_count),
            (1, slices.len() as i64)
        );
        match &slice.content {
            Content::Counters(counters) => {
                assert!((1..=MAX_SETS).contains(&counters.len()));
                for set in counters {
                    assert!(set.counters.len() <= MAX_COUNTERS, "{set:?}");
                    sets.insert(&set.name, &set.counters);
                }
            }
            Content::Devices(devices) => assert!((1..=MAX_DEVICES).contains(&devices.len())),
        }
    }
    assert_eq!(sets.len(), 16);
    assert!(slices.is_sorted_by_key(|slice| &slice.name));
    for device in devices(&layout) {
        assert!(device.name.to_string().len() <= 63);
        assert!(device.attributes.len() + device.capacity.len() <= 32);
        let set = sets[&device.counter_set];
        let is_there = |(counter, n): (&String, &u64)| *n > 0 && set[counter] >= *n;
        assert!(device.consumes.iter().all(is_there), "{device:?}");
    }
}

/// The layout that docs/dra-scheduling.md gives for eight A100.
#[test]
fn groups_devices_by_profile() {
    let world = World::new(&[Card::of("a100-80gb"); 8]);
    let layout = world.lay_out(&Published::default());
    let profiles = |content: &Content| match content {
        Content::Counters(sets) => vec![format!("{} sets", sets.len())],
        Content::Devices(devices) => {
            let mut names: Vec<String> = devices
                .iter()
                .map(|d| d.name.profile().to_string())
                .collect();
            names.dedup();
            names
        }
    };
    let all: Vec<Vec<String>> = { layout.published.slices.iter() }
        .map(|slice| profiles(&slice.content))
        .collect();
    assert_eq!(
        all,
        [
            vec!["8 sets"],
            vec!["1g.10gb"],
            vec!["1g.20gb", "2g.20gb"],
            vec!["3g.40gb", "4g.40gb", "7g.80gb"],
            vec!["1g.10gb+me"],
        ]
    );
    assert_eq!(devices(&layout).len(), 200);
}

/// A profile with more places than a ResourceSlice holds gets several, with GPUs of their own.
#[test]
fn splits_profile_by_gpu() {
    let world = World::new(&[Card::of("a100-80gb"); 12]);
    let layout = world.lay_out(&Published::default());
    let mut parts: Vec<BTreeSet<String>> = Vec::new();
    for slice in &layout.published.slices {
        if let Content::Devices(devices) = &slice.content {
            let ours = devices.iter().filter(|d| *"1g.10gb" == *d.name.profile());
            let gpus: BTreeSet<String> = ours.map(|d| d.counter_set.clone()).collect();
            parts.extend((!gpus.is_empty()).then_some(gpus));
        }
    }
    assert_eq!(parts.iter().map(BTreeSet::len).collect::<Vec<_>>(), [9, 3]);
    assert!(parts[0].is_disjoint(&parts[1]));
}

#[test]
fn small_profiles_come_first() {
    let world = World::new(&[Card::of("rtx-pro-6000")]);
    let layout = world.lay_out(&Published::default());
    let mut names: Vec<String> = { devices(&layout).into_iter() }
        .map(|d| d.name.profile().to_string())
        .collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "1g.24gb",
            "1g.24gb+gfx",
            "1g.24gb-me",
            "2g.48gb",
            "2g.48gb+gfx",
            "2g.48gb-me",
            "4g.96gb",
            "4g.96gb+gfx",
            "1g.24gb+me",
            "1g.24gb+me.all",
            "2g.48gb+me.all",
        ]
    );
}

#[test]
fn device_tells_all_but_place() {
    let world = World::new(&[Card::of("h100-80gb")]);
    let layout = world.lay_out(&Published::default());
    let text = |text: &str| Attribute::Text(text.to_owned());
    let version = |text: &str| Attribute::Version(text.to_owned());
    let mut seen = BTreeMap::new();
    for device in devices(&layout) {
        let profile = device.name.profile().to_string();
        let told = (&device.attributes, &device.capacity);
        assert_eq!(
            *seen.entry(profile).or_insert(told),
            told,
            "{}",
            device.name
        );
    }
    let (attributes, capacity) = seen["2g.20gb"];
    assert_eq!(
        *attributes,
        BTreeMap::from([
            ("architecture", text("Hopper")),
            ("cudaComputeCapability", version("9.0.0")),
            ("driverVersion", version("570.86.5")),
            ("parentUUID", text("GPU-0")),
            ("productName", text("NVIDIA H100 80GB HBM3")),
            ("profile", text("2g.20gb")),
            ("resource.kubernetes.io/pciBusID", text("0000:07:00.0")),
            ("type", text("mig")),
        ])
    );
    assert_eq!(
        *capacity,
        BTreeMap::from([
            ("computeSlices", 2),
            ("copyEngines", 2),
            ("decoders", 2),
            ("encoders", 0),
            ("jpegEngines", 2),
            ("memory", 20096 << 20),
            ("multiprocessors", 32),
            ("ofaEngines", 0),
        ])
    );
}

#[test]
fn long_values_are_cut() {
    let mut world = World::new(&[Card::of("a30")]);
    world.snapshot.gpus[0].name = "ü".repeat(40);
    world.snapshot.driver_version = "615.01-beta".to_owned();
    let layout = world.lay_out(&Published::default());
    let attributes = &devices(&layout)[0].attributes;
    assert_eq!(attributes["productName"], Attribute::Text("ü".repeat(32)));
    assert!(!attributes.contains_key("driverVersion"));
}

#[test]
fn quantities_are_canonical() {
    let all = [0, 7, 1023, 1024, 9728 << 20, 80 << 30, (80 << 30) + 1].map(quantity);
    assert_eq!(
        all,
        ["0", "7", "1023", "1Ki", "9728Mi", "80Gi", "85899345921"]
    );
}
