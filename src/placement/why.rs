//! Why there is no room, in words that an operator can act on.

use super::Wanted;
use super::room::{Reserved, Room, total_slices};
use crate::error::{Error, printable};
use crate::model::{Gpu, MigMode, Profile, Snapshot};
use crate::request::Slice;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRoom {
    /// No wait helps: the machine cannot give this, or the request is wrong.
    Never { why: String, hint: String },
    /// When a slice comes back, it may.
    Now { why: String, hint: String },
}

impl From<NoRoom> for Error {
    fn from(no: NoRoom) -> Error {
        let (NoRoom::Never { why, hint } | NoRoom::Now { why, hint }) = no;
        Error::new(why).hint(hint)
    }
}

pub fn no_gpu(snapshot: &Snapshot) -> NoRoom {
    let off: Vec<&Gpu> = snapshot
        .gpus
        .iter()
        .filter(|g| g.mig == MigMode::Disabled)
        .collect();
    let lost = match snapshot.unreadable.first() {
        Some((_, why)) => format!(" ({why})"),
        None => String::new(),
    };
    if off.is_empty() {
        return NoRoom::Never {
            why: format!(
                "no MIG-capable GPU: the driver has {}{lost}",
                count(snapshot.gpus.len(), "GPU")
            ),
            hint: "MIG needs an A30, A100, H100 or a later data-centre GPU".to_owned(),
        };
    }
    let pending = off.iter().any(|g| g.mig_pending == Some(MigMode::Enabled));
    let indices: Vec<String> = off.iter().map(|g| g.index.to_string()).collect();
    NoRoom::Never {
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

pub fn all_excluded(gpus: &[&Gpu], excluded: &[(String, String)]) -> NoRoom {
    let rules: Vec<String> = gpus
        .iter()
        .filter_map(|gpu| {
            let (_, rule) = excluded.iter().find(|(uuid, _)| *uuid == gpu.uuid)?;
            Some(format!("GPU {}: {rule}", gpu.index))
        })
        .collect();
    NoRoom::Never {
        why: format!("every GPU with MIG is kept from it ({})", rules.join("; ")),
        hint: "[policy] in the configuration has the rule".to_owned(),
    }
}

/// Of a list that was asked for. It is worth waiting where one of them is.
pub fn none_of(mut noes: Vec<NoRoom>) -> NoRoom {
    if noes.len() == 1 {
        return noes.remove(0);
    }
    let all: Vec<&str> = noes
        .iter()
        .map(|(NoRoom::Never { why, .. } | NoRoom::Now { why, .. })| why.as_str())
        .collect();
    let why = all.join("; and ");
    let now = noes.iter().find(|no| matches!(no, NoRoom::Now { .. }));
    match now.or(noes.first()) {
        Some(NoRoom::Now { hint, .. }) => NoRoom::Now {
            why,
            hint: hint.clone(),
        },
        Some(NoRoom::Never { hint, .. }) => NoRoom::Never {
            why,
            hint: hint.clone(),
        },
        None => NoRoom::Never {
            why: "nothing is asked for".to_owned(),
            hint: "name a profile or an amount of memory".to_owned(),
        },
    }
}

pub fn no_profile(gpus: &[&Gpu], asked: &Slice, wanted: &Wanted<'_>) -> NoRoom {
    let min_compute = wanted.min_compute;
    let mut known: Vec<&Profile> = Vec::new();
    for profile in gpus.iter().flat_map(|g| &g.profiles) {
        let barred = wanted.barred.contains(&profile.name);
        if !barred && !known.iter().any(|k| k.name == profile.name) {
            known.push(profile);
        }
    }
    let compute = match min_compute {
        0 => String::new(),
        n => format!(" and {}", count(n as usize, "compute slice")),
    };
    match asked {
        Slice::Profile(name) => {
            if let Some(few) = known.iter().find(|p| p.name == *name) {
                return NoRoom::Never {
                    why: format!(
                        "{name} has {}, and at least {min_compute} are asked for",
                        count(few.compute_slices as usize, "compute slice")
                    ),
                    hint: "ask for a larger profile, or for fewer compute slices".to_owned(),
                };
            }
            let distance = |p: &Profile| {
                let (g, gb) = numbers(name);
                (
                    p.compute_slices.abs_diff(g),
                    numbers(&p.name).1.abs_diff(gb),
                    p.name.len().abs_diff(name.len()),
                )
            };
            known.sort_by_key(|p| distance(p));
            let names: Vec<&str> = known.iter().map(|p| p.name.as_str()).collect();
            NoRoom::Never {
                why: format!("no GPU has profile {}", printable(name)),
                hint: format!("nearest first, there are {}", names.join(", ")),
            }
        }
        Slice::Memory(_) => {
            let most = known
                .iter()
                .max_by_key(|p| (p.memory_mib, p.compute_slices));
            NoRoom::Never {
                why: format!("no profile has {asked} of memory{compute}"),
                hint: most.map_or_else(String::new, |p| {
                    format!("the largest, {}, has {} MiB", p.name, p.memory_mib)
                }),
            }
        }
    }
}

/// `1g.10gb+me` gives (1, 10).
fn numbers(profile: &str) -> (u32, u32) {
    let mut numbers = profile
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().unwrap_or(u32::MAX));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

pub fn full(wanted: &[(&Gpu, &Profile)], reserved: &[Reserved], asked: &Slice) -> NoRoom {
    let (mut free, mut total, mut most, mut fragmented) = (0, 0, 0, false);
    for (gpu, profile) in wanted {
        let room = Room::new(gpu, reserved, &[]);
        free += room.free_slices();
        total += total_slices(gpu);
        most = most.max(room.free_slices());
        fragmented |= room.free_slices() >= profile.memory_slices();
    }
    let name = name_of(wanted, asked);
    let kind = if fragmented {
        "enough, but no place of the profile is free there: fragmentation, or its engines are used up"
    } else {
        "too few"
    };
    NoRoom::Now {
        why: format!(
            "no room for {name} on {}: {free} of {total} memory slices are free, at most {most} on one GPU ({kind})",
            count(wanted.len(), "GPU"),
        ),
        hint: WAIT_FOR_ROOM.to_owned(),
    }
}

/// There is room, and who came before waits for it, or for what it is part of.
pub fn kept(wanted: &[(&Gpu, &Profile)], asked: &Slice) -> NoRoom {
    NoRoom::Now {
        why: format!(
            "no room for {} but what others wait for",
            name_of(wanted, asked)
        ),
        hint: WAIT_FOR_ROOM.to_owned(),
    }
}

const WAIT_FOR_ROOM: &str =
    "migctl list shows who has what; runmig.dev/wait lets a container wait for room";

fn name_of(wanted: &[(&Gpu, &Profile)], asked: &Slice) -> String {
    match asked {
        Slice::Profile(name) => name.clone(),
        Slice::Memory(_) => format!("{asked} ({})", wanted[0].1.name),
    }
}

fn count(n: usize, what: &str) -> String {
    match n {
        0 => format!("no {what}"),
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}
