//! The words for a request of whole GPUs that gets none.

use super::{Waited, containers, count, earlier, waited};
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
    if !blockers.is_empty() {
        let (earlier, containers) = (earlier(blockers), containers(blockers));
        let waits = if blockers.len() == 1 { "waits" } else { "wait" };
        text.push(format!("{earlier} {waits} ({containers})"));
    }
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
    }
}

/// Returns the words for the use of a GPU.
pub fn used(usage: &GpuUse) -> String {
    match usage {
        GpuUse::Mig { pending: false } => "in MIG mode".to_owned(),
        GpuUse::Mig { pending: true } => "in MIG mode after the next reset".to_owned(),
        GpuUse::Free => "free".to_owned(),
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
        0 => {
            let is_mig = |why: &GpuObstacle| {
                matches!(why, GpuObstacle::Used(GpuUse::Mig { pending: false }))
            };
            match shortage.taken.iter().any(|(_, why)| is_mig(why)) {
                true => format!("ask for a slice of a GPU in MIG mode ({})", request::SLICE),
                false => "run migctl gpus to see the GPUs".to_owned(),
            }
        }
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
