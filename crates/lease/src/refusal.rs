//! The words of a refusal: for the error of a create, and for `migctl explain`.
//!
//! placement and the queue return data. This file turns it into English, and `room` that of requests outside of new
//! slices.

mod no_room;

pub(crate) use no_room::{NO_LEVEL_HINT, denied, error};
pub use no_room::{obstacle as gpu_obstacle, used as gpu_use};

use crate::error::{Error, printable};
use crate::placement::{
    Cause, Exhausted, Exhaustion, GpuReport, InTheWay, LeftOut, Move, Obstacle, Rejection,
    SearchResult, Shortage, Verdict,
};
use crate::request::Slice;
use crate::store::Waiting;
use std::time::Duration;

/// The way out where the driver cannot read a GPU.
const UNREADABLE_HINT: &str = "run nvidia-smi, and check the kernel log for the GPU's state";

/// The words in the name of an instance of a layout before the layout's.
pub(crate) const OF_LAYOUT: &str = " of layout ";

/// The end of the name of a container's instance that an administrator made.
pub(crate) const HELD_FOREIGN: &str = ", which runmig did not make)";

/// A rejection, and the queue around it.
pub(crate) struct Refusal<'a> {
    pub rejection: &'a Rejection,
    /// Requests that wait already, in their order.
    pub blockers: &'a [Waiting],
    /// None where the create was never to wait.
    pub waited: Option<Waited>,
}

pub(crate) struct Waited {
    pub time: Duration,
    /// The engine whose deadline shortened the time.
    pub cut_by: Option<&'static str>,
}

impl Refusal<'_> {
    /// Returns the error with its hint.
    pub(crate) fn error(&self) -> Error {
        let Some(main) = self.rejection.main_cause() else {
            return Error::new("cannot allocate a slice: the request names none")
                .hint("request a profile or an amount of memory");
        };
        let mut text = Vec::new();
        // Causes that all alternatives share are said once.
        let is_same = |a: &Cause, b: &Cause| (&a.obstacle, a.found) == (&b.obstacle, b.found);
        for causes in self.rejection.causes().chunk_by(is_same) {
            let names: Vec<String> = causes.iter().map(name).collect();
            let (names, why) = (names.join(" or "), self.cause(&causes[0]));
            text.push(format!("cannot allocate {names}: {why}"));
        }
        let is_reserved = |c: &Cause| matches!(c.obstacle, Obstacle::Reserved { .. });
        if main.obstacle.may_pass() && !self.rejection.causes().iter().any(is_reserved) {
            text.extend(queued_before(self.blockers));
        }
        text.extend(self.waited.as_ref().map(waited));
        Error::new(text.join("; ")).hint(self.hint(main))
    }

    fn cause(&self, cause: &Cause) -> String {
        let what = match &cause.obstacle {
            Obstacle::GpusExcluded(left_out) => {
                let what = match left_out.has_rule() {
                    true => "every GPU in MIG mode is excluded",
                    false => "no GPU in MIG mode can take it",
                };
                format!("{what} ({})", all_of(left_out).join("; "))
            }
            Obstacle::NoMigGpu { gpus: 0, left_out } if !left_out.unreadable.is_empty() => {
                format!("no GPU can be read ({})", all_of(left_out).join("; "))
            }
            Obstacle::NoMigGpu { gpus, left_out } => {
                let readable = match left_out.unreadable.is_empty() {
                    true => "",
                    false => " that can be read",
                };
                let listed = count(gpus + left_out.unreadable.len(), "GPU");
                let listed = format!("the driver lists {listed}");
                let all = [vec![listed], all_of(left_out)].concat().join("; ");
                format!("no GPU{readable} supports MIG ({all})")
            }
            Obstacle::MigOff { gpus, left_out, .. } => {
                let off = format!("GPU {}", join(gpus, ", "));
                let all = [vec![off], all_of(left_out)].concat().join("; ");
                format!("MIG is off on every GPU that supports it ({all})")
            }
            Obstacle::FewComputeSlices { has, needed } => format!(
                "the profile has {}, and the request needs at least {needed}",
                count(*has as usize, "compute slice")
            ),
            Obstacle::UnknownProfile { .. } => "no GPU offers the profile".to_owned(),
            Obstacle::TooMuchMemory {
                needed_compute: compute,
                is_restricted,
                ..
            } => {
                let allowed = match is_restricted {
                    true => " that policy.profiles allows",
                    false => "",
                };
                let (memory, compute) = (cause.slice(), and_compute(*compute, *compute));
                format!("no profile{allowed} has {memory} of memory{compute}")
            }
            Obstacle::TooMany {
                gpus,
                profile,
                most,
            } => match (count(*gpus, "GPU"), most) {
                (gpus, 0) => format!("{gpus} cannot hold {profile} together"),
                (gpu, _) if *gpus == 1 => format!("{gpu} holds at most {most} of {profile}"),
                (gpus, _) => format!("{gpus} hold at most {most} of {profile}"),
            },
            Obstacle::Reserved { .. } => {
                let whom = match self.blockers {
                    [] => "earlier requests".to_owned(),
                    some => format!("{} ({})", earlier(some), containers(some)),
                };
                format!("the free slots are reserved for {whom}")
            }
            Obstacle::NoSlot(shortage) => no_slot(shortage),
        };
        let what = match &cause.obstacle {
            Obstacle::TooMany { .. } => what,
            _ if !cause.request.is_mixed() => what,
            _ => format!("none for {}: {what}", cause.slice()),
        };
        match cause.found {
            0 => what,
            found => format!("after {found} of {} slices, {what}", cause.request.count()),
        }
    }

    fn hint(&self, cause: &Cause) -> String {
        const WHO: &str = "run migctl list to see who holds the slices";
        let hint = match &cause.obstacle {
            Obstacle::GpusExcluded(left_out) => match left_out.closed() {
                Some(remedy) => return self.see(remedy),
                None if left_out.has_rule() => {
                    "check [policy] and [kubernetes] in the configuration"
                }
                None if left_out.ends_mig() => "run one of these commands for the GPU",
                None => "ask for another share, or for a larger slice",
            },
            Obstacle::NoMigGpu { left_out, .. } if left_out.unreadable.is_empty() => {
                "use an A30, A100, H100 or a later data-centre GPU"
            }
            Obstacle::NoMigGpu { .. } => return self.see(UNREADABLE_HINT),
            Obstacle::MigOff { pending, .. } if !pending.is_empty() => {
                let gpus = join(pending, ",");
                return format!("run nvidia-smi -i {gpus} --gpu-reset, or reboot");
            }
            Obstacle::MigOff { gpus, left_out, .. } => {
                let is_held = |gpu: &u32| left_out.excluded.iter().any(|(held, _)| held == gpu);
                let (held, free): (Vec<u32>, Vec<u32>) = gpus.iter().partition(|gpu| is_held(gpu));
                let (first, gpus) = match free.is_empty() {
                    true => ("stop the container, then ", held),
                    false => ("", free),
                };
                return format!("{first}run nvidia-smi -i {} -mig 1", join(&gpus, ","));
            }
            Obstacle::FewComputeSlices { .. } => {
                "request a larger profile, or fewer compute slices"
            }
            Obstacle::UnknownProfile { offered } if !offered.is_empty() => {
                return format!("request one of {} (nearest first)", offered.join(", "));
            }
            Obstacle::TooMuchMemory {
                needed_compute,
                largest: Some(largest),
                ..
            } => {
                let (name, mib) = (&largest.name, largest.memory_mib);
                let compute = and_compute(*needed_compute, largest.compute_slices);
                return format!("request at most {name}, which has {mib} MiB{compute}");
            }
            Obstacle::UnknownProfile { .. } | Obstacle::TooMuchMemory { .. } => {
                "run migctl gpus to see the profiles"
            }
            Obstacle::TooMany { .. } => "request fewer slices",
            Obstacle::Reserved { .. } => return self.see(WHO),
            Obstacle::NoSlot(shortage) if shortage.plan().is_some() => {
                let quote = if cause.request.is_mixed() { "'" } else { "" };
                let asked = format!("{quote}{}{quote}", cause.request);
                let act = format!("run migctl explain {asked} to see which containers to restart");
                return self.see(&act);
            }
            Obstacle::NoSlot(shortage) if needs_administrator(shortage) => {
                let names = || shortage.in_the_way.iter().flat_map(|one| &one.names);
                let is_held = |name: &String| name.ends_with(HELD_FOREIGN);
                if names().all(|name| name.contains(OF_LAYOUT)) {
                    "set adopt = true to let containers have instances of a layout, or run migctl apply for another"
                } else if names().any(is_held) {
                    "run migctl list --all to see the instances that runmig did not make and their containers; stop these, \
                     then destroy the instances with nvidia-smi mig -dci, then -dgi"
                } else {
                    "run migctl list --all to see the instances that runmig did not make, and destroy them \
                     with nvidia-smi mig -dci, then -dgi"
                }
            }
            Obstacle::NoSlot(_) => return self.see(WHO),
        };
        hint.to_owned()
    }

    /// Returns the hint to do something, and to wait if the create has not waited.
    fn see(&self, act: &str) -> String {
        no_room::see(act, self.waited.is_some())
    }
}

/// Returns the obstacle of one GPU. None where the request fits on it.
pub fn on_gpu(report: &GpuReport<'_>) -> Option<String> {
    let profile = report.profile.map_or("the profile", |p| p.name.as_str());
    let free = format!(
        "{} of {} memory slices are free",
        report.free_slices, report.total_slices
    );
    Some(match &report.verdict {
        Verdict::Fits(_) => return None,
        Verdict::Full => free,
        Verdict::Queued => format!("{free}, and reserved for earlier requests"),
        Verdict::NoSlot => format!("{free}, but no slot of {profile} is"),
        Verdict::Exhausted(what) => format!("{free}, but no more {}", exhausted(*what, profile)),
        Verdict::NoProfile => "the GPU offers no such profile".to_owned(),
        Verdict::MigOff => "MIG is off".to_owned(),
        Verdict::MigPending => "MIG is off until the next reset".to_owned(),
        Verdict::NoMig => "the GPU does not support MIG".to_owned(),
        Verdict::Excluded(why) => gpu_obstacle(why),
    })
}

fn name(cause: &Cause) -> String {
    let request = printable(&cause.request.to_string());
    let profile = match &cause.obstacle {
        Obstacle::Reserved { profile } | Obstacle::TooMany { profile, .. } => profile,
        Obstacle::NoSlot(shortage) => &shortage.profile,
        _ => return request,
    };
    match &cause.request.slice {
        Slice::Memory(_) if !cause.request.is_mixed() => format!("{request} ({profile})"),
        Slice::Memory(_) | Slice::Profile(_) => request,
    }
}

fn no_slot(shortage: &Shortage) -> String {
    let is_full = shortage.free_slices < shortage.needed;
    let what = match &shortage.search {
        _ if is_full => "too few memory slices are free".to_owned(),
        _ if !shortage.exhausted.is_empty() => {
            let lacks = |one: &Exhaustion| {
                let what = exhausted(one.what, &one.profile);
                format!("GPU {} has no more {what}", one.gpu)
            };
            let all: Vec<String> = shortage.exhausted.iter().map(lacks).collect();
            all.join(", ")
        }
        Some(SearchResult::Plan(plan)) => {
            let of = |m: &Move| format!("{} at {} of GPU {}", m.profile, m.from, m.from_gpu);
            let moves: Vec<String> = plan.moves.iter().map(of).collect();
            let moves = moves.join(" and ");
            format!("the free memory is fragmented, and a move of {moves} makes room")
        }
        Some(SearchResult::Immovable) => "the slices in the way cannot be moved".to_owned(),
        Some(SearchResult::Impossible) => "no move of other slices makes room".to_owned(),
        Some(SearchResult::Beyond(restarts)) => {
            let after = match restarts {
                0 => String::new(),
                n => format!(" after all plans of up to {}", count(*n, "restart")),
            };
            format!("the free memory is fragmented, and the search for moves gave up{after}")
        }
        None if shortage.most_free < shortage.needed => {
            "no single GPU has enough free memory slices".to_owned()
        }
        None => "the free memory is fragmented".to_owned(),
    };
    let are_free = if is_full {
        ""
    } else {
        " memory slices are free"
    };
    let (free, all) = (shortage.free_slices, shortage.total_slices);
    let (gpus, most) = (count(shortage.gpus, "GPU"), shortage.most_free);
    let mut parts = vec![format!(
        "{what} ({free} of {all}{are_free} on {gpus}, at most {most} on one)"
    )];
    if shortage.quarantined > 0 {
        let slices = count(shortage.quarantined as usize, "memory slice");
        let (are, them) = match shortage.quarantined {
            1 => ("is", "it"),
            _ => ("are", "them"),
        };
        parts.push(format!(
            "{slices} {are} quarantined, as runmig could not free {them}"
        ));
    }
    parts.extend(in_the_way(&shortage.in_the_way));
    parts.extend(all_of(&shortage.left_out));
    parts.join("; ")
}

/// Says which instances are in the way: `on GPU 0 container train (3g.40gb) is in the way, on GPU 1 …`.
fn in_the_way(all: &[InTheWay]) -> Option<String> {
    const SHOWN: usize = 3;
    let known = || all.iter().filter(|one| !one.names.is_empty());
    let on_gpu = |(n, one): (usize, &InTheWay)| {
        let more = one.names.len().saturating_sub(SHOWN);
        let mut names: Vec<String> = one.names.iter().take(SHOWN).map(|n| printable(n)).collect();
        if more > 0 {
            names.push(format!("{more} more"));
        }
        let are = if one.names.len() == 1 { "is" } else { "are" };
        // A relative clause ends with a comma before other words.
        let has_clause = |name: &String| name.contains(", which ") && !name.ends_with(')');
        let comma = |name: &String| if has_clause(name) { "," } else { "" };
        let (last, init) = names.split_last()?;
        let before = match init {
            [] => String::new(),
            [one] => format!("{one}{} and ", comma(one)),
            some => format!("{} and ", some.join(", ")),
        };
        let verb = match n {
            0 => format!("{} {are} in the way", comma(last)),
            _ => String::new(),
        };
        Some(format!("on GPU {} {before}{last}{verb}", one.gpu))
    };
    let shown = known().take(SHOWN).enumerate();
    let mut words: Vec<String> = shown.filter_map(on_gpu).collect();
    match known().count().saturating_sub(SHOWN) {
        0 => {}
        1 => words.push("others on 1 more GPU".to_owned()),
        n => words.push(format!("others on {n} more GPUs")),
    }
    (!words.is_empty()).then(|| words.join(", "))
}

/// Says whether only an administrator can make room: on each GPU something is in the way that no container's end
/// removes.
fn needs_administrator(shortage: &Shortage) -> bool {
    !shortage.in_the_way.is_empty() && shortage.in_the_way.iter().all(|one| !one.ends)
}

fn exhausted(what: Exhausted, profile: &str) -> String {
    let what = match what {
        Exhausted::Instances => return format!("instances of {profile}"),
        Exhausted::ComputeSlices => "compute slices",
        Exhausted::CopyEngines => "copy engines",
        Exhausted::Decoders => "decoders",
        Exhausted::Encoders => "encoders",
        Exhausted::JpegEngines => "JPEG engines",
        Exhausted::OpticalFlowAccelerators => "optical flow accelerators",
    };
    what.to_owned()
}

fn all_of(left_out: &LeftOut) -> Vec<String> {
    let excluded = left_out.excluded.iter();
    let excluded = excluded.map(|(gpu, why)| format!("GPU {gpu}: {}", gpu_obstacle(why)));
    excluded.chain(left_out.unreadable.clone()).collect()
}

/// Tells the earlier requests in the queue; none without any.
fn queued_before(blockers: &[Waiting]) -> Option<String> {
    let waits = if blockers.len() == 1 { "waits" } else { "wait" };
    let (earlier, containers) = (earlier(blockers), containers(blockers));
    (!blockers.is_empty()).then(|| format!("{earlier} {waits} ({containers})"))
}

fn earlier(blockers: &[Waiting]) -> String {
    count(blockers.len(), "earlier request")
}

/// Names the first of the requests.
fn containers(blockers: &[Waiting]) -> String {
    const SHOWN: usize = 3;
    let name = |Waiting { waiter: w, .. }: &Waiting| {
        printable(&format!("container {}, {}", w.container, w.request))
    };
    let mut names: Vec<String> = blockers.iter().take(SHOWN).map(name).collect();
    if blockers.len() > SHOWN {
        names.push("…".to_owned());
    }
    names.join("; ")
}

fn waited(waited: &Waited) -> String {
    let time = humantime::format_duration(waited.time);
    match waited.cut_by {
        Some(engine) => format!("the create waited {time}, as {engine} gives up soon after"),
        None => format!("the create waited {time}"),
    }
}

/// Names compute slices where the request needs some.
fn and_compute(needed: u32, slices: u32) -> String {
    match needed {
        0 => String::new(),
        _ => format!(" and {}", count(slices as usize, "compute slice")),
    }
}

fn join(indices: &[u32], between: &str) -> String {
    let indices: Vec<String> = indices.iter().map(u32::to_string).collect();
    indices.join(between)
}

fn count(n: usize, noun: &str) -> String {
    match n {
        0 => format!("no {noun}"),
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

#[cfg(test)]
mod tests;
