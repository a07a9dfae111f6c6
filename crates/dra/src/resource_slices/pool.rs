//! The ResourceSlices of a node: counter sets by GPU, devices by profile, and the generation of their pool.

use super::counters::counter_set;
use super::devices::device;
use super::gpus::{LeftOut, Offer, PublishedGpu, select};
use super::names::{self, DeviceName, PciAddress};
use super::node::Node;
use super::order::{Orderer, settle};
use super::types::{Amounts, Content, CounterSet, Device, PublishedSlice};
use runmig_lease::model::ProfileName;
use std::collections::{BTreeMap, BTreeSet};

/// The most devices in a ResourceSlice whose devices consume counters.
pub const MAX_DEVICES: usize = 64;
/// The most counter sets in a ResourceSlice.
pub const MAX_SETS: usize = 8;

/// Everything that a node publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The ResourceSlices, sorted by name.
    pub slices: Vec<PublishedSlice>,
    /// The GPUs behind them. A restart forgets them; then a lost GPU keeps only the devices with claims.
    pub gpus: Vec<PublishedGpu>,
}

/// The ResourceSlices of a node, and the GPUs that are not in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The part that goes to the API.
    pub published: Published,
    /// GPUs and profiles that are left out, each with the reason.
    pub left_out: Vec<LeftOut>,
}

/// Lays out the devices of a node. `before` is what the node published last: its order stays as long as it is right,
/// and its generation as long as the ResourceSlices have the same members.
pub fn lay_out(node: &Node<'_>, before: &Published) -> Layout {
    let (gpus, left_out) = select(node, &before.gpus);
    let sets: Vec<CounterSet> = { gpus.iter() }
        .map(|gpu| counter_set(gpu, &node.occupants(&gpu.gpu)))
        .collect();
    let by_name: BTreeMap<&str, &Amounts> = { sets.iter() }
        .map(|s| (s.name.as_str(), &s.counters))
        .collect();
    let orderer = Orderer::new(node, &gpus);
    let mut contents: Vec<(String, Content)> = { sets.chunks(MAX_SETS).enumerate() }
        .map(|(part, sets)| {
            let name = names::counter_slice(node.name, part);
            (name, Content::Counters(sets.to_vec()))
        })
        .collect();
    for (part, groups) in packed(&gpus).into_iter().enumerate() {
        let name = names::device_slice(node.name, part);
        let stood = before.slices.iter().find(|slice| slice.name == name);
        let stood = stood
            .map(|slice| device_names(&slice.content))
            .unwrap_or_default();
        let mut devices = Vec::new();
        for group in groups {
            let ours = { stood.iter() }.filter(|name| *name.profile() == group.profile);
            let ours: Vec<DeviceName> = ours.cloned().collect();
            let available = orderer.available(&group.profile, &group.addresses());
            let offers = group.offers();
            let all = offers.iter().map(|(_, offer)| offer.name.clone()).collect();
            devices.extend(settle(&ours, &available, all).iter().filter_map(|name| {
                let (gpu, offer) = offers.iter().find(|(_, offer)| offer.name == *name)?;
                let set = by_name.get(gpu.address.label().as_str())?;
                Some(device(gpu, offer, &node.snapshot.driver_version, set))
            }));
        }
        contents.push((name, Content::Devices(devices)));
    }
    let generation = generation(&before.slices, &contents);
    let slice_count = i64::try_from(contents.len()).unwrap_or(i64::MAX);
    let slices = contents.into_iter().map(|(name, content)| PublishedSlice {
        name,
        pool: names::pool(node.name),
        node: node.name.to_owned(),
        generation,
        slice_count,
        content,
    });
    Layout {
        published: Published {
            slices: slices.collect(),
            gpus,
        },
        left_out,
    }
}

/// Returns the generation of the pool: the one before, unless a ResourceSlice gets or loses a member.
fn generation(before: &[PublishedSlice], now: &[(String, Content)]) -> i64 {
    let members = |content: &Content| -> BTreeSet<String> {
        match content {
            Content::Counters(sets) => sets.iter().map(|set| set.name.clone()).collect(),
            Content::Devices(devices) => devices.iter().map(|d| d.name.to_string()).collect(),
        }
    };
    let newest = before.iter().map(|slice| slice.generation).max();
    let were: BTreeMap<&str, BTreeSet<String>> = { before.iter() }
        .filter(|slice| Some(slice.generation) == newest)
        .map(|slice| (slice.name.as_str(), members(&slice.content)))
        .collect();
    let are: BTreeMap<&str, BTreeSet<String>> = { now.iter() }
        .map(|(name, content)| (name.as_str(), members(content)))
        .collect();
    match newest {
        Some(newest) if were == are => newest,
        newest => newest.unwrap_or(0) + 1,
    }
}

fn device_names(content: &Content) -> Vec<DeviceName> {
    match content {
        Content::Counters(_) => Vec::new(),
        Content::Devices(devices) => devices.iter().map(|d: &Device| d.name.clone()).collect(),
    }
}

/// The devices of one profile on GPUs that fit into a ResourceSlice together.
struct Group<'g> {
    profile: ProfileName,
    gpus: Vec<&'g PublishedGpu>,
}

impl<'g> Group<'g> {
    fn offers(&self) -> Vec<(&'g PublishedGpu, &'g Offer)> {
        let of = |gpu: &&'g PublishedGpu| {
            let gpu = *gpu;
            offers_of(gpu, &self.profile)
                .map(move |offer| (gpu, offer))
                .collect::<Vec<_>>()
        };
        self.gpus.iter().flat_map(of).collect()
    }

    fn addresses(&self) -> Vec<PciAddress> {
        self.gpus.iter().map(|gpu| gpu.address).collect()
    }
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
        let mut is_begun = false;
        let all: usize = gpus
            .iter()
            .map(|gpu| offers_of(gpu, &profile).count())
            .sum();
        for gpu in gpus {
            let count = offers_of(gpu, &profile).count();
            if count == 0 {
                continue;
            }
            // A profile that does not fit here as a whole begins a new slice.
            if count > left || (!is_begun && all > left) {
                slices.push(Vec::new());
                left = MAX_DEVICES;
                is_begun = false;
            }
            left = left.saturating_sub(count);
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
fn profiles(gpus: &[PublishedGpu]) -> Vec<ProfileName> {
    let mut profiles: Vec<ProfileName> = Vec::new();
    for offer in gpus.iter().flat_map(|gpu| &gpu.offers) {
        if !profiles.contains(offer.name.profile()) {
            profiles.push(offer.name.profile().clone());
        }
    }
    profiles.sort_by_key(rank);
    profiles
}

/// Returns the key by which profiles sort: as `placement` compares them for an amount of memory, `+me` last.
pub(super) fn rank(profile: &ProfileName) -> (bool, u32, u32, bool, String) {
    let name = profile.to_string();
    let is_plain = !name.contains(['+', '-']);
    let (gigabytes, compute) = (profile.gigabytes, profile.gpu_slices);
    (name.contains("+me"), gigabytes, compute, !is_plain, name)
}
