//! The words for a request of whole GPUs that gets none.

use super::{Waited, count, queued_before, waited};
use crate::error::{Error, printable};
use crate::placement::{GpuObstacle, GpuShortage, GpuUse};
use crate::request;
use crate::store::Waiting;

/// Returns the error of a create. `blockers` are the earlier requests in the queue.
pub(super) fn error(
    shortage: &GpuShortage,
    blockers: &[Waiting],
    waiting: Option<&Waited>,
) -> Error {
    let what = count(shortage.count as usize, "whole GPU");
    let mut text = vec![format!("cannot allocate {what}: {}", cause(shortage))];
    text.extend(queued_before(blockers));
    text.extend(waiting.map(waited));
    Error::new(text.join("; ")).hint(hint(shortage, waiting.is_some()))
}

fn cause(shortage: &GpuShortage) -> String {
    if shortage.free.is_empty() && shortage.taken.is_empty() && shortage.unreadable.is_empty() {
        return "the driver has no GPUs".to_owned();
    }
    let free = match shortage.free.len() {
        0 => "no GPU is free".to_owned(),
        1 => "only 1 GPU is free".to_owned(),
        n => format!("only {n} GPUs are free"),
    };
    let taken = shortage.taken.iter();
    let taken = taken.map(|(index, why)| format!("GPU {index}: {}", obstacle(why)));
    let all: Vec<String> = taken
        .chain(shortage.unreadable.iter().map(|e| printable(e)))
        .collect();
    match all.is_empty() {
        true => free,
        false => format!("{free} ({})", all.join("; ")),
    }
}

/// Returns the words for the obstacle of one GPU.
pub fn obstacle(why: &GpuObstacle) -> String {
    match why {
        GpuObstacle::Used(usage) => used(usage),
        GpuObstacle::Excluded(rule) => printable(rule),
        GpuObstacle::Queued => "reserved for an earlier request".to_owned(),
        GpuObstacle::Full {
            free_mib,
            gives_out,
            foreign_mib,
            holders,
        } => {
            let mut beside = Vec::new();
            if !holders.is_empty() {
                beside.push(sharers(holders));
            }
            if *foreign_mib > 0 {
                let who = "processes without a lease that use";
                beside.push(format!("{who} {foreign_mib}Mi"));
            }
            let free = format!("{free_mib}Mi of {gives_out}Mi is free");
            match beside.is_empty() {
                true => free,
                false => format!("{free} beside {}", beside.join(" and ")),
            }
        }
        GpuObstacle::Crowded { most } => {
            let shares = count(*most as usize, "share");
            format!("it has {shares}, as many as it takes (sharing.shares_per_gpu)")
        }
        GpuObstacle::TooLarge { gives_out } => format!("it gives out {gives_out}Mi"),
        GpuObstacle::TooSmall { memory_mib } => {
            format!("the fraction is {memory_mib}Mi there, less than 1Gi")
        }
        GpuObstacle::OneProcess => "its compute mode is Exclusive_Process".to_owned(),
        GpuObstacle::OtherLevel(level) => format!("its shares have the level {level}"),
        GpuObstacle::NoLevel(reasons) => {
            format!(
                "no permitted level can hold the limit there ({})",
                printable(reasons)
            )
        }
    }
}

/// Names the holders of shares: `container a`, `containers a, b and 3 more`. Those without a name come last.
fn sharers(holders: &[String]) -> String {
    const SHOWN: usize = 2;
    let names = holders.iter().filter(|name| !name.is_empty());
    let names: Vec<String> = names.take(SHOWN).map(|name| printable(name)).collect();
    let noun = if holders.len() == 1 {
        "container"
    } else {
        "containers"
    };
    match (holders.len() - names.len(), names.as_slice()) {
        (n, []) => format!("{n} {noun}"),
        (0, [one]) => format!("{noun} {one}"),
        (0, [init @ .., last]) => format!("{noun} {} and {last}", init.join(", ")),
        (n, some) => format!("{noun} {} and {n} more", some.join(", ")),
    }
}

/// Returns the words for the use of a GPU.
pub fn used(usage: &GpuUse) -> String {
    match usage {
        GpuUse::Mig { pending: false } => "in MIG mode".to_owned(),
        GpuUse::Mig { pending: true } => "in MIG mode after the next reset".to_owned(),
        GpuUse::Free => "free".to_owned(),
        GpuUse::Shared {
            holders,
            booked_mib,
            level,
        } => {
            let have = if holders.len() == 1 { "has" } else { "have" };
            let who = sharers(holders);
            format!("{who} {have} shares of {booked_mib}Mi, level {level}")
        }
        GpuUse::Exclusive { holder: Some(name) } => format!("container {} has it", printable(name)),
        GpuUse::Exclusive { holder: None } => "a record in the ledger holds it".to_owned(),
        GpuUse::Foreign { pids } => format!(
            "process {} computes on it without a lease",
            pids.first().copied().unwrap_or_default()
        ),
        GpuUse::Prohibited => "its compute mode is Prohibited".to_owned(),
        GpuUse::Unknown { why } => printable(why),
    }
}

/// Says whether a GPU is in MIG mode.
pub(super) fn has_mig(taken: &[(u32, GpuObstacle)]) -> bool {
    let is_mig =
        |why: &GpuObstacle| matches!(why, GpuObstacle::Used(GpuUse::Mig { pending: false }));
    taken.iter().any(|(_, why)| is_mig(why))
}

fn hint(shortage: &GpuShortage, has_waited: bool) -> String {
    if shortage.may_pass() {
        let see = match shortage.has_foreign() {
            true => "run migctl list and nvidia-smi to see who uses the GPUs",
            false => "run migctl list to see who holds the GPUs",
        };
        return match has_waited {
            true => see.to_owned(),
            false => format!("{see}, or set {} to wait", request::WAIT),
        };
    }
    let passing = shortage.taken.iter().filter(|(_, why)| why.may_pass());
    match shortage.free.len() + passing.count() {
        0 => match has_mig(&shortage.taken) {
            true => format!("ask for a slice of a GPU in MIG mode ({})", request::SLICE),
            false => "run migctl gpus to see the GPUs".to_owned(),
        },
        n => format!("ask for at most {n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(count: u32, free: &[u32], taken: &[(u32, GpuObstacle)]) -> String {
        let shortage = GpuShortage {
            count,
            free: free.to_vec(),
            taken: taken.to_vec(),
            unreadable: Vec::new(),
        };
        error(&shortage, &[], None).line()
    }

    #[test]
    fn names_obstacle_of_each_gpu() {
        let holder = Some("web".to_owned());
        let taken = [
            (0, GpuObstacle::Used(GpuUse::Mig { pending: false })),
            (1, GpuObstacle::Used(GpuUse::Exclusive { holder })),
            (2, GpuObstacle::Used(GpuUse::Foreign { pids: vec![77] })),
        ];
        assert_eq!(
            line(1, &[], &taken),
            "cannot allocate 1 whole GPU: no GPU is free (GPU 0: in MIG mode; GPU 1: container web has it; \
             GPU 2: process 77 computes on it without a lease); hint: run migctl list and nvidia-smi to see \
             who uses the GPUs, or set runmig.dev/wait to wait"
        );
        assert!(line(3, &[], &taken).ends_with("hint: ask for at most 2"));
        assert_eq!(
            line(1, &[], &taken[..1]),
            "cannot allocate 1 whole GPU: no GPU is free (GPU 0: in MIG mode); hint: ask for a slice \
             of a GPU in MIG mode (runmig.dev/slice)"
        );
        assert_eq!(
            line(9, &[0, 1], &[]),
            "cannot allocate 9 whole GPUs: only 2 GPUs are free; hint: ask for at most 2"
        );
        assert!(line(1, &[], &[]).contains("the driver has no GPUs"));
    }
}
