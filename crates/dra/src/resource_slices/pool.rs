//! The ResourceSlices of a node: counter sets by GPU, devices by profile, and the generation of their pool.

use super::counters::{self, Amounts};
use super::devices::device;
use super::gpus::{LeftOut, Offer, PublishedGpu, select};
use super::names::{self, DeviceName, PciAddress};
use super::node::Node;
use super::objects::quantities;
use super::order::{Orderer, settle};
use k8s_openapi::api::resource::v1::{CounterSet, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use runmig_lease::model::ProfileName;
use runmig_lease::programs::DRIVER;
use std::collections::{BTreeMap, BTreeSet};

/// The most devices in a ResourceSlice whose devices consume counters.
pub const MAX_DEVICES: usize = 64;
/// The most counter sets in a ResourceSlice.
pub const MAX_SETS: usize = 8;

/// What the next layout needs of the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The ResourceSlices, by name.
    slices: BTreeMap<String, Members>,
    /// The GPUs behind them. A restart forgets them; then a lost GPU keeps only the devices with claims.
    pub gpus: Vec<PublishedGpu>,
}

/// The members of a ResourceSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Members {
    /// The generation of the pool. 0 before it has one.
    generation: i64,
    /// The names of its counter sets, or of its devices in their order.
    names: Vec<String>,
}

impl Published {
    /// Reads ResourceSlices, also those that an earlier process wrote.
    pub fn of(slices: &[ResourceSlice]) -> Published {
        let members = |slice: &ResourceSlice| {
            let spec = &slice.spec;
            let sets = spec.shared_counters.iter().flatten().map(|set| &set.name);
            let devices = spec.devices.iter().flatten().map(|device| &device.name);
            let members = Members {
                generation: spec.pool.generation,
                names: sets.chain(devices).cloned().collect(),
            };
            (slice.metadata.name.clone().unwrap_or_default(), members)
        };
        Published {
            slices: slices.iter().map(members).collect(),
            gpus: Vec::new(),
        }
    }

    /// Returns the members of a generation, whatever their order, each with its ResourceSlice.
    fn members(&self, generation: i64) -> BTreeSet<(&String, &String)> {
        { self.slices.iter() }
            .filter(|(_, slice)| slice.generation == generation)
            .flat_map(|(slice, members)| members.names.iter().map(move |name| (slice, name)))
            .collect()
    }

    /// Returns the devices of a profile in a ResourceSlice, in their order.
    fn devices(&self, slice: &str, profile: &ProfileName) -> Vec<DeviceName> {
        let names = self.slices.get(slice).map(|slice| slice.names.iter());
        { names.into_iter().flatten() }
            .filter_map(|name| name.parse().ok())
            .filter(|name: &DeviceName| name.profile() == profile)
            .collect()
    }
}

/// The ResourceSlices of a node, and the GPUs that are not in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// The ResourceSlices, sorted by name.
    pub slices: Vec<ResourceSlice>,
    /// Their part for the next layout.
    pub published: Published,
    /// GPUs and profiles that are left out, each with the reason.
    pub left_out: Vec<LeftOut>,
}

/// Lays out the devices of a node. `before` is what the node published last: its order stays as long as it is right,
/// and its generation as long as the ResourceSlices have the same members.
pub fn lay_out(node: &Node<'_>, before: &Published) -> Layout {
    let (gpus, left_out) = select(node, &before.gpus);
    let rooms: BTreeMap<PciAddress, Amounts> = { gpus.iter() }
        .map(|gpu| (gpu.address, counters::room(gpu, &node.occupants(&gpu.gpu))))
        .collect();
    let sets: Vec<CounterSet> = { rooms.iter() }
        .map(|(address, room)| CounterSet {
            name: address.label(),
            counters: quantities(room),
        })
        .collect();
    let orderer = Orderer::new(node);
    let mut slices: Vec<ResourceSlice> = { sets.chunks(MAX_SETS).enumerate() }
        .map(|(part, sets)| {
            let mut slice = empty(node, names::counter_slice(node.name, part));
            slice.spec.shared_counters = Some(sets.to_vec());
            slice
        })
        .collect();
    for (part, groups) in packed(&gpus).into_iter().enumerate() {
        let name = names::device_slice(node.name, part);
        let mut devices = Vec::new();
        for Group { profile, gpus } in groups {
            let stood = before.devices(&name, &profile);
            let available = orderer.available(&profile, &gpus);
            let offers: Vec<(&PublishedGpu, &Offer)> = { gpus.iter() }
                .flat_map(|&gpu| offers_of(gpu, &profile).map(move |offer| (gpu, offer)))
                .collect();
            let all = offers.iter().map(|(_, offer)| offer.name.clone()).collect();
            devices.extend(settle(&stood, &available, all).iter().filter_map(|name| {
                let (gpu, offer) = offers.iter().find(|(_, offer)| offer.name == *name)?;
                Some(device(node, gpu, offer, rooms.get(&gpu.address)?))
            }));
        }
        let mut slice = empty(node, name);
        slice.spec.devices = Some(devices);
        slices.push(slice);
    }
    // The one before, unless a ResourceSlice gets or loses a member.
    let newest = before.slices.values().map(|slice| slice.generation).max();
    let newest = newest.unwrap_or(0);
    let is_same = before.members(newest) == Published::of(&slices).members(0);
    let generation = if is_same { newest } else { newest + 1 };
    let count = i64::try_from(slices.len()).unwrap_or(i64::MAX);
    for slice in &mut slices {
        slice.spec.pool.generation = generation;
        slice.spec.pool.resource_slice_count = count;
    }
    Layout {
        published: Published {
            gpus,
            ..Published::of(&slices)
        },
        slices,
        left_out,
    }
}

/// Returns a ResourceSlice of a node without content.
fn empty(node: &Node<'_>, name: String) -> ResourceSlice {
    ResourceSlice {
        metadata: ObjectMeta {
            name: Some(name),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            driver: DRIVER.to_owned(),
            node_name: Some(node.name.to_owned()),
            pool: ResourcePool {
                name: names::pool(node.name),
                ..ResourcePool::default()
            },
            ..ResourceSliceSpec::default()
        },
    }
}

/// The devices of one profile on GPUs that fit into a ResourceSlice together.
struct Group<'g> {
    profile: ProfileName,
    gpus: Vec<&'g PublishedGpu>,
}

fn offers_of<'g>(gpu: &'g PublishedGpu, profile: &ProfileName) -> impl Iterator<Item = &'g Offer> {
    gpu.offers
        .iter()
        .filter(move |offer| offer.name.profile() == profile)
}

/// Packs the profiles into ResourceSlices in their order. A profile with too many devices gets several, each with
/// GPUs of its own, so that no reorder moves a device between two objects.
fn packed(gpus: &[PublishedGpu]) -> Vec<Vec<Group<'_>>> {
    let mut slices: Vec<Vec<Group<'_>>> = Vec::new();
    let mut left = 0;
    for profile in profiles(gpus) {
        let count = |gpu: &PublishedGpu| offers_of(gpu, &profile).count();
        let all: usize = gpus.iter().map(count).sum();
        let mut is_begun = false;
        for gpu in gpus.iter().filter(|gpu| count(gpu) > 0) {
            // A profile that does not fit here as a whole begins a new slice.
            let needed = if is_begun { count(gpu) } else { all };
            if needed > left {
                slices.push(Vec::new());
                left = MAX_DEVICES;
                is_begun = false;
            }
            left = left.saturating_sub(count(gpu));
            if let Some(slice) = slices.last_mut() {
                match slice.last_mut().filter(|_| is_begun) {
                    Some(group) => group.gpus.push(gpu),
                    None => slice.push(Group {
                        profile: profile.clone(),
                        gpus: vec![gpu],
                    }),
                }
            }
            is_begun = true;
        }
    }
    slices
}

/// Returns the profiles in the order in which the scheduler should see them: those with media extensions last, small
/// ones first. So a request for an amount of memory takes the smallest that has it.
fn profiles(gpus: &[PublishedGpu]) -> impl Iterator<Item = ProfileName> {
    let offers = gpus.iter().flat_map(|gpu| &gpu.offers);
    let all = offers.map(|offer| offer.name.profile());
    let by_rank: BTreeMap<_, _> = all
        .map(|profile| (rank(profile), profile.clone()))
        .collect();
    by_rank.into_values()
}

/// Returns the key by which profiles sort: as `placement` compares them for an amount of memory, `+me` last.
pub fn rank(profile: &ProfileName) -> (bool, u32, u32, bool, String) {
    let name = profile.to_string();
    let is_plain = !name.contains(['+', '-']);
    let (gigabytes, compute) = (profile.gigabytes, profile.gpu_slices);
    (name.contains("+me"), gigabytes, compute, !is_plain, name)
}
