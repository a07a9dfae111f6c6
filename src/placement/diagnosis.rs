//! Why there is no room, in words that an operator can act on.

use super::constraints::Constraints;
use super::occupancy::Slot;
use super::plan::{Move, SearchResult};
use super::rejection::Rejection;
use crate::error::printable;
use crate::model::{Gpu, MigMode, Profile, Snapshot};
use crate::request::{Alternative, Slice};

/// Returns the obstacles that keep whole GPUs from the request, whatever is free on them.
fn kept_out(snapshot: &Snapshot, constraints: &Constraints<'_>) -> Vec<String> {
    let rules = snapshot.gpus.iter().filter(|g| g.mig == MigMode::Enabled);
    let rules = rules.filter_map(|gpu| {
        let rule = constraints.exclusion(gpu)?;
        Some(format!("GPU {}: {}", gpu.index, printable(rule)))
    });
    let lost = snapshot.unreadable.iter().map(|(_, why)| why.clone());
    rules.chain(lost).collect()
}

/// For those who come after a semicolon.
fn and_kept_out(snapshot: &Snapshot, constraints: &Constraints<'_>) -> String {
    kept_out(snapshot, constraints)
        .iter()
        .map(|why| format!("; {why}"))
        .collect()
}

pub fn no_gpu(snapshot: &Snapshot, constraints: &Constraints<'_>) -> Rejection {
    let with = |mode: MigMode| snapshot.gpus.iter().filter(move |g| g.mig == mode);
    if with(MigMode::Enabled).next().is_some() {
        return Rejection::Unsatisfiable {
            why: format!(
                "every GPU with MIG is kept from it ({})",
                kept_out(snapshot, constraints).join("; ")
            ),
            hint: "[policy] in the configuration has the rule".to_owned(),
        };
    }
    let lost = match snapshot.unreadable.first() {
        Some((_, why)) => format!(" ({why})"),
        None => String::new(),
    };
    let off: Vec<&Gpu> = with(MigMode::Disabled).collect();
    if off.is_empty() {
        return Rejection::Unsatisfiable {
            why: format!(
                "no MIG-capable GPU: the driver has {}{lost}",
                count(snapshot.gpus.len(), "GPU")
            ),
            hint: match lost.is_empty() {
                true => "MIG needs an A30, A100, H100 or a later data-centre GPU",
                false => "nvidia-smi and the kernel's log say what the GPU has",
            }
            .to_owned(),
        };
    }
    let pending = off.iter().any(|g| g.mig_pending == Some(MigMode::Enabled));
    let indices: Vec<String> = off.iter().map(|g| g.index.to_string()).collect();
    Rejection::Unsatisfiable {
        why: format!(
            "MIG is off on every GPU that has it (GPU {}){lost}",
            indices.join(", ")
        ),
        hint: if pending {
            "it is on after a reset: nvidia-smi --gpu-reset, or reboot".to_owned()
        } else {
            format!("nvidia-smi -i {} -mig 1 turns it on", indices.join(","))
        },
    }
}

/// Merges the rejections of a list's alternatives. A wait is worthwhile if it is for one of them.
pub fn none_of(mut noes: Vec<Rejection>) -> Rejection {
    // That MIG is off is in the way of each.
    noes.dedup();
    if noes.len() == 1 {
        return noes.remove(0);
    }
    let all: Vec<&str> = noes
        .iter()
        .map(
            |(Rejection::Unsatisfiable { why, .. } | Rejection::NoCapacity { why, .. })| {
                why.as_str()
            },
        )
        .collect();
    let why = all.join("; and ");
    let now = noes
        .iter()
        .find(|no| matches!(no, Rejection::NoCapacity { .. }));
    match now.or(noes.first()) {
        Some(Rejection::NoCapacity { hint, .. }) => Rejection::NoCapacity {
            why,
            hint: hint.clone(),
        },
        Some(Rejection::Unsatisfiable { hint, .. }) => Rejection::Unsatisfiable {
            why,
            hint: hint.clone(),
        },
        None => Rejection::Unsatisfiable {
            why: "nothing is asked for".to_owned(),
            hint: "name a profile or an amount of memory".to_owned(),
        },
    }
}

pub fn no_profile(gpus: &[&Gpu], request: &Slice, constraints: &Constraints<'_>) -> Rejection {
    let min_compute = constraints.min_compute;
    let mut known: Vec<&Profile> = Vec::new();
    for profile in gpus.iter().flat_map(|g| &g.profiles) {
        let denied_profiles = constraints.denied_profiles.contains(&profile.name);
        if !denied_profiles && !known.iter().any(|k| k.name == profile.name) {
            known.push(profile);
        }
    }
    // Only where they were asked for.
    let compute = |slices: u32| match min_compute {
        0 => String::new(),
        _ => format!(" and {}", count(slices as usize, "compute slice")),
    };
    match request {
        Slice::Profile(name) => {
            if let Some(few) = known.iter().find(|p| *p.name == *name) {
                return Rejection::Unsatisfiable {
                    why: format!(
                        "{name} has {}, and at least {min_compute} are asked for",
                        count(few.compute_slices as usize, "compute slice")
                    ),
                    hint: "ask for a larger profile, or for fewer compute slices".to_owned(),
                };
            }
            let distance = |p: &Profile| {
                (
                    p.compute_slices.abs_diff(name.gpu_slices),
                    p.gigabytes().abs_diff(name.gigabytes),
                    p.name.len().abs_diff(name.to_string().len()),
                )
            };
            known.sort_by_key(|p| distance(p));
            let names: Vec<&str> = known.iter().map(|p| p.name.as_str()).collect();
            Rejection::Unsatisfiable {
                why: format!("no GPU has profile {name}"),
                hint: format!("nearest first, there are {}", names.join(", ")),
            }
        }
        Slice::Memory(_) => {
            let most = known
                .iter()
                .max_by_key(|p| (p.memory_mib, p.compute_slices));
            let allowed = match constraints.denied_profiles.is_empty() {
                true => "",
                false => " that policy.profiles allows",
            };
            Rejection::Unsatisfiable {
                why: format!(
                    "no profile{allowed} has {request} of memory{}",
                    compute(min_compute)
                ),
                hint: most.map_or_else(
                    || "migctl gpus shows the profiles that there are".to_owned(),
                    |p| {
                        let compute = compute(p.compute_slices);
                        format!("the largest, {}, has {} MiB{compute}", p.name, p.memory_mib)
                    },
                ),
            }
        }
    }
}

/// Why a request finds no room, as far as can be said without a search.
pub fn full(
    snapshot: &Snapshot,
    fitting: &[(&Gpu, &Profile)],
    reserved: &[Slot],
    request: &Slice,
    constraints: &Constraints<'_>,
) -> Rejection {
    in_words(snapshot, fitting, reserved, request, constraints, None)
}

/// With what a search has found, and whether anything at all can move, where there was one.
pub fn in_words(
    snapshot: &Snapshot,
    fitting: &[(&Gpu, &Profile)],
    reserved: &[Slot],
    request: &Slice,
    constraints: &Constraints<'_>,
    found: Option<(&Alternative, &SearchResult, bool)>,
) -> Rejection {
    let (mut free, mut total, mut most, mut quarantined) = (0, 0, 0, 0);
    let mut smallest = u32::MAX;
    let mut used_up = Vec::new();
    for (gpu, profile) in fitting {
        let occupancy = constraints.occupancy(gpu, reserved);
        free += occupancy.free_slices();
        total += occupancy.total_slices();
        most = most.max(occupancy.free_slices());
        smallest = smallest.min(profile.memory_slices());
        let held = constraints.quarantined.iter().filter(|r| r.gpu == gpu.uuid);
        quarantined += held.map(|r| r.placement.size).sum::<u32>();
        if occupancy.free_slices() >= profile.memory_slices()
            && let Some(lack) = occupancy.lacks(profile, occupancy.taken())
        {
            used_up.push(format!(
                "GPU {} has no more {}",
                gpu.index,
                lack.of(profile)
            ));
        }
    }
    let name = name_of(fitting, request);
    let mut hint = WAIT_FOR_ROOM.to_owned();
    let kind = match found {
        _ if free < smallest => "full".to_owned(),
        _ if !used_up.is_empty() => used_up.join(", "),
        Some((request, SearchResult::Plan(plan), _)) => {
            hint = format!(
                "migctl defrag --plan {request} says what to restart for it; {WAIT_FOR_ROOM}"
            );
            let of = |m: &Move| format!("{} at {} of GPU {}", m.profile, m.from, m.from_gpu);
            let moves: Vec<String> = plan.moves.iter().map(of).collect();
            format!(
                "fragmented: it would fit if {} lay elsewhere",
                moves.join(" and ")
            )
        }
        Some((_, SearchResult::Impossible, true)) => {
            "full: what lies in the way cannot be moved".to_owned()
        }
        Some((_, SearchResult::Impossible, false)) => {
            "full: no other order of the slices makes room".to_owned()
        }
        Some((_, SearchResult::Beyond(n), _)) => format!(
            "fragmented: up to {} make no room, and to look at more takes too long",
            count(*n, "restart")
        ),
        None if most < smallest => "too few on each".to_owned(),
        None => "fragmented: enough are free, but no place of the profile is".to_owned(),
    };
    let quarantined = match quarantined {
        0 => String::new(),
        1 => "; 1 is quarantined, which could not be given back".to_owned(),
        n => format!("; {n} are quarantined, which could not be given back"),
    };
    Rejection::NoCapacity {
        why: format!(
            "no room for {name} on {}: {free} of {total} memory slices are free, at most {most} on one \
             GPU ({kind}){quarantined}{}",
            count(fitting.len(), "GPU"),
            and_kept_out(snapshot, constraints)
        ),
        hint,
    }
}

/// Words the rejection of one of several slices, `found` of which would have their room.
pub fn of_several(no: Rejection, request: &Alternative, found: usize) -> Rejection {
    let say = |why: String| match (request.count, found) {
        (1, _) => why,
        (_, 0) => format!("{request}: {why}"),
        (all, found) => {
            format!("{request}: there is room for {found} of {all}, and then {why}")
        }
    };
    match no {
        Rejection::Unsatisfiable { why, hint } => Rejection::Unsatisfiable {
            why: say(why),
            hint,
        },
        Rejection::NoCapacity { why, hint } => Rejection::NoCapacity {
            why: say(why),
            hint,
        },
    }
}

pub fn never_so_many(fitting: &[(&Gpu, &Profile)], request: &Alternative, most: u32) -> Rejection {
    Rejection::Unsatisfiable {
        why: format!(
            "{request}: {} {} {most} of {} at most",
            count(fitting.len(), "GPU"),
            if fitting.len() == 1 { "holds" } else { "hold" },
            name_of(fitting, &request.slice)
        ),
        hint: "ask for fewer".to_owned(),
    }
}

/// There is room, and who came before waits for it, or for what it is part of.
pub fn kept(fitting: &[(&Gpu, &Profile)], request: &Slice) -> Rejection {
    Rejection::NoCapacity {
        why: format!(
            "no room for {} but what others wait for",
            name_of(fitting, request)
        ),
        hint: WAIT_FOR_ROOM.to_owned(),
    }
}

const WAIT_FOR_ROOM: &str =
    "migctl list shows who has what; runmig.dev/wait lets a container wait for room";

fn name_of(fitting: &[(&Gpu, &Profile)], request: &Slice) -> String {
    match request {
        Slice::Profile(name) => name.to_string(),
        Slice::Memory(_) => format!("{request} ({})", fitting[0].1.name),
    }
}

fn count(n: usize, what: &str) -> String {
    match n {
        0 => format!("no {what}"),
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}
