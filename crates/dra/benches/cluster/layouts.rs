//! The devices of a node in ResourceSlices, in several ways. Pure.

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use runmig_dra::resource_slices::{DeviceName, pool};

/// A way to put the devices of a node into ResourceSlices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// A pool per node, devices by profile, in `placement`'s order: as `runmig-dra` publishes.
    Ours,
    /// A pool per GPU, each in `placement`'s order.
    PoolPerGpu,
    /// A pool per node, devices by GPU, in the order of their starts.
    Nvidia,
    /// As ours, without counters. It gives out places that overlap.
    WithoutCounters,
}

pub const LAYOUTS: [Layout; 4] = [
    Layout::Ours,
    Layout::PoolPerGpu,
    Layout::Nvidia,
    Layout::WithoutCounters,
];

/// The most devices in a ResourceSlice whose devices consume counters.
const MOST: usize = 64;

impl Layout {
    pub fn name(self) -> &'static str {
        match self {
            Layout::Ours => "runmig-dra",
            Layout::PoolPerGpu => "a pool per GPU",
            Layout::Nvidia => "NVIDIA's layout and order",
            Layout::WithoutCounters => "without counters",
        }
    }

    /// Returns the ResourceSlices of a node from those of `runmig-dra`.
    pub fn arrange(self, node: &str, ours: &[ResourceSlice]) -> Vec<ResourceSlice> {
        match self {
            Layout::Ours => ours.to_vec(),
            Layout::PoolPerGpu => pools(node, ours),
            Layout::Nvidia => by_gpu(node, ours),
            Layout::WithoutCounters => without_counters(ours),
        }
    }
}

fn devices(slices: &[ResourceSlice]) -> Vec<Device> {
    slices
        .iter()
        .flat_map(|slice| slice.spec.devices.clone().unwrap_or_default())
        .collect()
}

fn set_of(device: &Device) -> &str {
    let consumes = device
        .consumes_counters
        .as_ref()
        .and_then(|all| all.first());
    consumes.map_or("", |consumption| &consumption.counter_set)
}

fn name_of(device: &Device) -> DeviceName {
    device.name.parse().expect("it was published")
}

/// Returns the slice of one name, pool and content, like the given one otherwise.
fn slice(like: &ResourceSlice, name: String, pool: String, count: usize) -> ResourceSlice {
    let mut slice = like.clone();
    slice.metadata.name = Some(name);
    slice.spec.pool.name = pool;
    slice.spec.pool.generation = 1;
    slice.spec.pool.resource_slice_count = count as i64;
    slice.spec.devices = None;
    slice.spec.shared_counters = None;
    slice
}

fn pools(node: &str, ours: &[ResourceSlice]) -> Vec<ResourceSlice> {
    let devices = devices(ours);
    let sets = ours
        .iter()
        .flat_map(|slice| slice.spec.shared_counters.clone().unwrap_or_default());
    let of = |set: k8s_openapi::api::resource::v1::CounterSet| {
        let pool = format!("{}/{}", pool(node), set.name);
        let name = format!("{node}-{}", set.name);
        let mut counters = slice(&ours[0], format!("{name}-counters"), pool.clone(), 2);
        let mut places = slice(&ours[0], format!("{name}-devices"), pool, 2);
        let its = devices.iter().filter(|device| set_of(device) == set.name);
        places.spec.devices = Some(its.cloned().collect());
        counters.spec.shared_counters = Some(vec![set]);
        [counters, places]
    };
    sets.flat_map(of).collect()
}

fn by_gpu(node: &str, ours: &[ResourceSlice]) -> Vec<ResourceSlice> {
    let mut devices = devices(ours);
    // The profiles of a GPU follow each other as the driver lists them: by their size, `+me` beside its plain one.
    devices.sort_by_cached_key(|device| {
        let name = name_of(device);
        let placement = name.placement();
        (
            set_of(device).to_owned(),
            placement.size,
            name.profile().to_string(),
            placement.start,
        )
    });
    let counters = ours
        .iter()
        .filter(|slice| slice.spec.shared_counters.is_some());
    let count = counters.clone().count() + devices.len().div_ceil(MOST);
    let counters = counters.enumerate().map(|(part, like)| {
        let mut counters = slice(like, format!("{node}-counters-{part}"), pool(node), count);
        counters
            .spec
            .shared_counters
            .clone_from(&like.spec.shared_counters);
        counters
    });
    let places = devices.chunks(MOST).enumerate().map(|(part, devices)| {
        let mut places = slice(
            &ours[0],
            format!("{node}-devices-{part}"),
            pool(node),
            count,
        );
        places.spec.devices = Some(devices.to_vec());
        places
    });
    counters.chain(places).collect()
}

fn without_counters(ours: &[ResourceSlice]) -> Vec<ResourceSlice> {
    let with_devices: Vec<&ResourceSlice> = ours
        .iter()
        .filter(|slice| slice.spec.devices.is_some())
        .collect();
    let count = with_devices.len() as i64;
    let bare = with_devices.into_iter().cloned().map(|mut slice| {
        slice.spec.pool.resource_slice_count = count;
        for device in slice.spec.devices.iter_mut().flatten() {
            device.consumes_counters = None;
        }
        slice
    });
    bare.collect()
}
