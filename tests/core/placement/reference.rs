//! Placement, written as plainly as possible: memory slices are numbers in sets, and it tries every
//! possibility.

use runmig_lease::model::{Gpu, GpuInstance, GpuUuid, Placement, Profile, Snapshot};
use runmig_lease::placement::{Constraints, Movable, Slot, choose};
use runmig_lease::request::Slice;
use std::cmp::Reverse;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub gpu: u32,
    pub profile: String,
    pub at: Placement,
}

type There = (u32, Placement);

/// How much of something a profile has.
type Part = Box<dyn Fn(&Profile) -> u32>;

fn span(at: Placement) -> BTreeSet<u32> {
    (at.start..at.start + at.size).collect()
}

/// Whether a profile fits beside what is there.
pub fn fits(gpu: &Gpu, there: &[There], profile: &Profile, at: Placement) -> bool {
    let mut others = there.iter().map(|(_, other)| span(*other));
    first_lack(gpu, there, profile).is_none() && others.all(|other| other.is_disjoint(&span(at)))
}

fn free(gpu: &Gpu, there: &[There]) -> BTreeSet<u32> {
    let mut all: BTreeSet<u32> = gpu
        .profiles
        .iter()
        .flat_map(|p| &p.placements)
        .flat_map(|at| span(*at))
        .collect();
    all.retain(|slice| !there.iter().any(|(_, at)| span(*at).contains(slice)));
    all
}

/// Per cent. Six tenths are the same for all profiles; the rest goes by how many of each are in use,
/// and one more.
fn weight(in_use: &Snapshot, gpu: &Gpu, profile: &Profile) -> i64 {
    let number = |name: &str| {
        let there = in_use.gpus.iter().flat_map(|gpu| {
            let name_of = |i: &GpuInstance| &gpu.profile(i.profile_id).unwrap().name;
            gpu.instances.iter().map(name_of)
        });
        1 + there.filter(|there| *there == name).count() as i64
    };
    let all: i64 = gpu.profiles.iter().map(|p| number(&p.name)).sum();
    60 + 40 * gpu.profiles.len() as i64 * number(&profile.name) / all
}

fn fragmentation(in_use: &Snapshot, gpu: &Gpu, there: &[There]) -> i64 {
    let free = free(gpu, there);
    let mut lost = 0;
    for profile in &gpu.profiles {
        let mut covered = BTreeSet::new();
        for at in &profile.placements {
            if span(*at).is_subset(&free) {
                covered.extend(span(*at));
            }
        }
        lost += free.difference(&covered).count() as i64 * weight(in_use, gpu, profile);
    }
    lost
}

/// A memory slice that one profile loses.
const SLICE: i64 = 1_680_000;

/// As it is, and a part of what it will be when one of them has gone.
fn potential(in_use: &Snapshot, gpu: &Gpu, there: &[There]) -> i64 {
    let now = fragmentation(in_use, gpu, there);
    let without = |i: usize| {
        let mut rest = there.to_vec();
        rest.remove(i);
        fragmentation(in_use, gpu, &rest)
    };
    let sum: i64 = (0..there.len()).map(without).sum();
    let next = match there.len() as i64 {
        0 => 840 * now,
        n => 840 * sum / n,
    };
    20 * 840 * now + 3 * next
}

/// `1g.10gb+me` gives 10.
fn gigabytes(profile: &str) -> u64 {
    let (_, size) = profile.split_once('.').unwrap();
    size.split("gb").next().unwrap().parse().unwrap()
}

/// One and a half of what is taken, which all profiles lose.
fn taken(gpu: &Gpu, at: Placement) -> i64 {
    i64::from(at.size) * gpu.profiles.len() as i64 * SLICE * 3 / 2
}

/// Returns the worth of a memory slice that one profile loses: its gigabytes by the square root of
/// the GPU's.
fn worth(gpu: &Gpu) -> i64 {
    let size = gpu.profiles.iter().map(|p| gigabytes(&p.name)).max();
    let size = size.unwrap() as i64;
    let root = (0..).find(|n| (n + 1) * (n + 1) > size * 10_000).unwrap();
    size * 1000 * root / (free(gpu, &[]).len() * gpu.profiles.len()) as i64
}

pub fn decide(snapshot: &Snapshot, reserved: &[Slot], wanted: &Constraints<'_>) -> Option<Place> {
    let one = |slice: &Slice| {
        let all = answers(snapshot, reserved, wanted, slice).into_iter();
        let places = all.filter_map(Result::ok).flatten();
        places
            .min_by_key(|found| found.rank)
            .map(|found| found.place)
    };
    wanted.alternatives.iter().find_map(one)
}

type Rank = (bool, u64, u32, bool, i64, usize, Reverse<u32>, u32);

/// A free place, with the profiles that have one now, and none beside it.
pub struct Found {
    rank: Rank,
    pub place: Place,
    pub closes: Vec<String>,
}

/// What each GPU has for a slice: its places, the best first, or why there is none.
pub fn answers(
    snapshot: &Snapshot,
    reserved: &[Slot],
    wanted: &Constraints<'_>,
    slice: &Slice,
) -> Vec<Result<Vec<Found>, &'static str>> {
    let mut in_use = snapshot.clone();
    for gpu in &mut in_use.gpus {
        let mut idle = wanted.idle.to_vec();
        idle.retain(|r| r.gpu == gpu.uuid);
        gpu.instances
            .retain(|i| !idle.iter().any(|r| r.placement == i.placement));
    }
    let gpus = snapshot.gpus.iter();
    gpus.map(|gpu| on_gpu(&in_use, gpu, reserved, wanted, slice))
        .collect()
}

fn on_gpu(
    in_use: &Snapshot,
    gpu: &Gpu,
    reserved: &[Slot],
    wanted: &Constraints<'_>,
    slice: &Slice,
) -> Result<Vec<Found>, &'static str> {
    if wanted.excluded.iter().any(|(uuid, _)| *uuid == gpu.uuid) {
        return Err("excluded");
    }
    let profile = meant(gpu, slice, wanted).ok_or("no profile")?;
    let promised: Vec<There> = reserved
        .iter()
        .filter(|r| r.gpu == gpu.uuid)
        .map(|r| (r.profile_id, r.placement))
        .collect();
    let is_idle = |id: u32, at: Placement| {
        let same = |r: &&Slot| r.gpu == gpu.uuid && r.profile_id == id && r.placement == at;
        wanted.idle.iter().find(same).is_some() && !promised.contains(&(id, at))
    };
    let all_there = gpu.instances.iter().map(|i| (i.profile_id, i.placement));
    let (idle, mut there): (Vec<There>, Vec<There>) = all_there.partition(|i| is_idle(i.0, i.1));
    // Promised, and not made yet.
    for place in &promised {
        if !there.contains(place) {
            there.push(*place);
        }
    }
    let mut all = Vec::new();
    for &at in &profile.placements {
        if !fits(gpu, &there, profile, at) {
            continue;
        }
        let with = [there.clone(), vec![(profile.id, at)]].concat();
        let reuses = is_idle(profile.id, at);
        let evicted = match reuses {
            true => 0,
            false => evictions(gpu, &there, &idle, profile, at),
        };
        let before = potential(in_use, gpu, &there);
        let added = potential(in_use, gpu, &with) - before + evicted * SLICE;
        let free = free(gpu, &there).len();
        let rank = (
            wanted.own_gpus.contains(&gpu.uuid),
            gigabytes(&profile.name),
            profile.compute_slices,
            !reuses,
            worth(gpu) * (taken(gpu, at) + free as i64 * SLICE * 6 / 10 + added),
            free,
            Reverse(at.start),
            gpu.index,
        );
        let has_place = |p: &&Profile, there: &[There]| {
            let mut places = p.placements.iter();
            places.any(|at| fits(gpu, there, p, *at))
        };
        let closed = gpu.profiles.iter();
        let closed = closed.filter(|p| has_place(p, &there) && !has_place(p, &with));
        all.push(Found {
            rank,
            place: Place {
                gpu: gpu.index,
                profile: profile.name.clone(),
                at,
            },
            closes: closed.map(|p| p.name.clone()).collect(),
        });
    }
    all.sort_by_key(|found| found.rank);
    match all.is_empty() {
        false => Ok(all),
        true if free(gpu, &there).len() < span(profile.placements[0]).len() => Err("full"),
        true if first_lack(gpu, &there, profile).is_some() => Err("exhausted"),
        true => Err("no slot"),
    }
}

/// How many idle ones go: all in the way, and of the others, in order, while the driver would refuse.
fn evictions(gpu: &Gpu, there: &[There], idle: &[There], profile: &Profile, at: Placement) -> i64 {
    let in_way = |i: &&There| !span(i.1).is_disjoint(&span(at));
    let going = idle.iter().filter(in_way).count();
    let mut staying: Vec<There> = idle.iter().filter(|i| !in_way(i)).copied().collect();
    let mut more = 0;
    while let Some(lack) = first_lack(gpu, &[there, &staying].concat(), profile) {
        // The first that lets it have more of what it lacks; that is for the product to know, and
        // here it is enough that each idle one that goes helps.
        let has_some = |i: &There| lack(gpu.profile(i.0).unwrap()) > 0;
        let helps = staying.iter().position(has_some);
        staying.remove(helps.expect("without all of them it fits"));
        more += 1;
    }
    (going + more) as i64
}

/// Returns what a profile lacks first beside what is there: how much of it another one has.
fn first_lack(gpu: &Gpu, there: &[There], profile: &Profile) -> Option<Part> {
    let same = there.iter().filter(|(id, _)| *id == profile.id).count();
    if same as u32 >= profile.max_instances {
        let id = profile.id;
        return Some(Box::new(move |p| u32::from(p.id == id)));
    }
    let parts: [fn(&Profile) -> u32; 6] = [
        |p| p.compute_slices,
        |p| p.copy_engines,
        |p| p.decoders,
        |p| p.encoders,
        |p| p.jpegs,
        |p| p.ofas,
    ];
    let is_short = |part: &fn(&Profile) -> u32| {
        let all = gpu.profiles.iter().map(part).max().unwrap();
        let of = |(id, _): &There| part(gpu.profile(*id).unwrap());
        there.iter().map(of).sum::<u32>() + part(profile) > all
    };
    let part = parts.into_iter().find(is_short)?;
    Some(Box::new(part))
}

fn meant<'a>(gpu: &'a Gpu, slice: &Slice, wanted: &Constraints<'_>) -> Option<&'a Profile> {
    let mut profiles: Vec<&Profile> = gpu.profiles.iter().collect();
    profiles.retain(|p| p.compute_slices >= wanted.min_compute);
    profiles.retain(|p| !wanted.denied_profiles.contains(&p.name));
    match slice {
        Slice::Profile(name) => profiles.into_iter().find(|p| *p.name == *name),
        Slice::Memory(bytes) => {
            profiles.retain(|p| p.memory_mib << 20 >= *bytes);
            profiles.sort_by_key(|p| (p.memory_mib, p.compute_slices, p.name.contains(['+', '-'])));
            profiles.first().copied()
        }
    }
}

/// The fewest of ours that are to be taken down so that the request and then they find room again, by
/// trying every set and every order.
pub fn restarts(snapshot: &Snapshot, ours: &[Movable], wanted: &Constraints<'_>) -> Option<usize> {
    let sets = (0..1u32 << ours.len()).map(|set| -> Vec<&Movable> {
        let is_in = |(i, _): &(usize, &Movable)| set >> i & 1 == 1;
        ours.iter()
            .enumerate()
            .filter(is_in)
            .map(|(_, m)| m)
            .collect()
    });
    sets.filter(|going| comes_again(snapshot, going, wanted))
        .map(|going| going.iter().map(|m| m.containers).sum())
        .min()
}

fn comes_again(snapshot: &Snapshot, going: &[&Movable], wanted: &Constraints<'_>) -> bool {
    let mut now = snapshot.clone();
    for gpu in &mut now.gpus {
        let uuid = gpu.uuid.clone();
        gpu.instances.retain(|i| {
            let is_it = |m: &&Movable| m.slot.gpu == uuid && m.slot.placement == i.placement;
            !going.iter().any(is_it)
        });
    }
    let mut again: Vec<Again<'_>> = Vec::new();
    for Movable { slot, excluded, .. } in going {
        let gpu = snapshot.gpus.iter().find(|g| g.uuid == slot.gpu);
        let profile = gpu.unwrap().profile(slot.profile_id).unwrap();
        again.push((Slice::Profile(profile.name.parse().unwrap()), excluded));
    }
    add(&now, wanted).is_some_and(|now| in_any_order(&now, &again))
}

/// A slice that comes again, and the GPUs where it may not.
type Again<'a> = (Slice, &'a [(GpuUuid, String)]);

fn in_any_order(now: &Snapshot, again: &[Again<'_>]) -> bool {
    let mut tried: Vec<&Again<'_>> = Vec::new();
    again.is_empty()
        || (0..again.len()).any(|i| {
            if tried.contains(&&again[i]) {
                return false;
            }
            tried.push(&again[i]);
            let mut rest = again.to_vec();
            rest.remove(i);
            let (slice, excluded) = &again[i];
            let wanted = Constraints {
                excluded,
                ..Constraints::one(slice)
            };
            add(now, &wanted).is_some_and(|then| in_any_order(&then, &rest))
        })
}

fn add(now: &Snapshot, wanted: &Constraints<'_>) -> Option<Snapshot> {
    let found = choose(now, &[], wanted).ok()?;
    let mut then = now.clone();
    let made = GpuInstance {
        id: 0,
        profile_id: found.profile.id,
        placement: found.placement,
    };
    then.gpus[found.gpu.index as usize].instances.push(made);
    Some(then)
}
