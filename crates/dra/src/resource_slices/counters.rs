//! The counters of one GPU: the limits of `placement`, and the room that they leave to claims.

use super::gpus::PublishedGpu;
use super::names::profile_label;
use super::node::Occupant;
use runmig_lease::model::{Gpu, Placement, Profile};
use runmig_lease::placement::{Exhausted, Occupancy, PARTS, Parts, parts};
use std::collections::{BTreeMap, BTreeSet};

/// Amounts by name.
pub type Amounts = BTreeMap<String, u64>;

/// The most counters in a set.
pub const MAX_COUNTERS: usize = 32;
/// Counts bytes for quotas. It never limits: the memory slices do.
const MEMORY: &str = "memory";

/// Returns the counters of an empty GPU.
pub fn totals(gpu: &Gpu) -> Amounts {
    let places = gpu.profiles.iter().flat_map(|p| &p.placements);
    let slices: BTreeSet<u32> = places.flat_map(|at| span(*at)).collect();
    let mut totals: Amounts = slices.iter().map(|s| (memory_slice(*s), 1)).collect();
    totals.extend(named(Occupancy::limit(gpu)));
    totals.extend({ gpu.profiles.iter() }.map(|p| (instances(p), p.max_instances.into())));
    // No set of places has more memory than this for each of its memory slices.
    let for_slice = |p: &Profile| p.memory_mib.div_ceil(u64::from(p.memory_slices().max(1)));
    let most = gpu.profiles.iter().map(for_slice).max().unwrap_or(0);
    totals.insert(MEMORY.to_owned(), (most * slices.len() as u64) << 20);
    totals
}

/// Returns the consumption of a slice of the profile at a place.
pub fn consumption(profile: &Profile, at: Placement) -> Amounts {
    let mut amounts: Amounts = span(at).map(|slice| (memory_slice(slice), 1)).collect();
    amounts.extend(named(parts(profile)));
    amounts.insert(instances(profile), 1);
    amounts.insert(MEMORY.to_owned(), profile.memory_mib << 20);
    amounts
}

/// Returns the room on a GPU, by counter. Each use lowers the counters, but not by the amounts that the scheduler
/// subtracts for the device of the use's claim. So both together count each use once.
pub(super) fn room(gpu: &PublishedGpu, occupants: &[Occupant<'_>]) -> Amounts {
    let mut counters = totals(&gpu.gpu);
    let mut devices = BTreeSet::new();
    for occupant in occupants {
        let taken = match occupant.profile {
            Some(profile) => consumption(profile, occupant.at),
            None => span(occupant.at).map(|s| (memory_slice(s), 1)).collect(),
        };
        let offer = occupant.claim.and_then(|device| {
            let offer = gpu.offers.iter().find(|offer| offer.name == *device)?;
            devices.insert(device.to_string()).then_some(offer)
        });
        let subtracted = offer.map_or_else(Amounts::new, |offer| {
            consumption(&offer.profile, offer.name.placement())
        });
        for (counter, amount) in taken {
            let rest = amount.saturating_sub(subtracted.get(&counter).copied().unwrap_or(0));
            if let Some(room) = counters.get_mut(&counter) {
                *room = room.saturating_sub(rest);
            }
        }
    }
    counters
}

/// The memory slices of a place. `placement` knows the first 64.
fn span(at: Placement) -> impl Iterator<Item = u32> {
    at.start.min(64)..at.start.saturating_add(at.size).min(64)
}

fn memory_slice(slice: u32) -> String {
    format!("memory-slice-{slice}")
}

fn instances(profile: &Profile) -> String {
    format!("instances-{}", profile_label(&profile.name))
}

/// Returns compute slices and engines by the names of their counters, without those that are 0.
fn named(parts: Parts) -> impl Iterator<Item = (String, u64)> {
    let named = PARTS.into_iter().zip(parts).filter(|(_, n)| *n > 0);
    named.map(|(part, n)| (part_label(part).to_owned(), n.into()))
}

fn part_label(part: Exhausted) -> &'static str {
    match part {
        Exhausted::Instances => "instances",
        Exhausted::ComputeSlices => "compute-slices",
        Exhausted::CopyEngines => "copy-engines",
        Exhausted::Decoders => "decoders",
        Exhausted::Encoders => "encoders",
        Exhausted::JpegEngines => "jpeg-engines",
        Exhausted::OpticalFlowAccelerators => "ofa-engines",
    }
}
