//! The words for a request of a share that gets none.

use super::gpus::{has_mig, obstacle};
use super::{Refusal, Waited, queued_before, waited};
use crate::error::{Error, printable};
use crate::placement::{GpuObstacle, SeatShortage, ShareShortage};
use crate::request::{self, Wanted};
use crate::store::Waiting;

/// Returns the error of a create. `blockers` are the earlier requests in the queue.
pub(super) fn error(
    shortage: &ShareShortage,
    blockers: &[Waiting],
    waiting: Option<&Waited>,
) -> Error {
    let what = Wanted::Share(shortage.sizes.clone()).written();
    let mut text = vec![format!("cannot allocate a {what}: {}", cause(shortage))];
    text.extend(queued_before(blockers));
    text.extend(waiting.map(waited));
    Error::new(text.join("; ")).hint(hint(shortage, waiting.is_some()))
}

fn cause(shortage: &ShareShortage) -> String {
    if shortage.taken.is_empty() && shortage.unreadable.is_empty() {
        return "the driver has no GPUs".to_owned();
    }
    let taken = shortage.taken.iter();
    let taken = taken.map(|(index, why)| format!("GPU {index}: {}", obstacle(why)));
    let unreadable = shortage.unreadable.iter().map(|e| printable(e));
    let all: Vec<String> = taken.chain(unreadable).collect();
    format!("no GPU has room for it ({})", all.join("; "))
}

/// The way out where no permitted level can hold the limit of a share.
pub(crate) const NO_LEVEL_HINT: &str = "the administrator may add none to sharing.enforcement: then runmig books the \
                                        memory, and nothing limits it";

fn hint(shortage: &ShareShortage, has_waited: bool) -> String {
    let lacks_level = |(_, why): &(u32, GpuObstacle)| matches!(why, GpuObstacle::NoLevel(_));
    if !shortage.may_pass() {
        if shortage.taken.iter().any(lacks_level) {
            return NO_LEVEL_HINT.to_owned();
        }
        return match has_mig(&shortage.taken) {
            true => format!("ask for a slice of a GPU in MIG mode ({})", request::SLICE),
            false => "run migctl gpus to see the GPUs".to_owned(),
        };
    }
    let see = match shortage.has_foreign() {
        true => "run migctl list and nvidia-smi to see who uses the GPUs",
        false => "run migctl list to see who shares the GPUs",
    };
    match has_waited {
        true => see.to_owned(),
        false => format!("{see}, or set {} to wait", request::WAIT),
    }
}

/// Returns the error of a create. `blockers` are the earlier requests in the queue.
pub(super) fn seat_error(
    shortage: &SeatShortage,
    blockers: &[Waiting],
    waited: Option<Waited>,
) -> Error {
    let has_waited = waited.is_some();
    let no_slice = Refusal {
        rejection: &shortage.rejection,
        blockers,
        waited,
    };
    let no_slice = no_slice.error();
    let what = shortage.wanted.written();
    let taken = shortage.taken.iter();
    let taken: Vec<String> = taken
        .map(|(slice, why)| format!("{slice}: {}", obstacle(why)))
        .collect();
    let cause = match taken.as_slice() {
        [] => format!("it needs a new slice, and runmig {no_slice}"),
        some => format!(
            "no slice with seats has room for it ({}), and for a new slice runmig {no_slice}",
            some.join("; ")
        ),
    };
    let error = Error::new(format!("cannot allocate a {what}: {cause}"));
    let is_full = shortage.taken.iter().any(|(_, why)| why.may_pass());
    let see = "run migctl list to see who has seats in the slices";
    match (is_full, no_slice.advice()) {
        (true, _) if has_waited => error.hint(see),
        (true, _) => error.hint(format!("{see}, or set {} to wait", request::WAIT)),
        (false, Some(hint)) => error.hint(hint),
        (false, None) => error.hint("run migctl gpus to see the GPUs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GpuUuid;
    use crate::placement::GpuUse;
    use crate::request::ShareSize;

    fn line(sizes: &[ShareSize], taken: Vec<(u32, GpuObstacle)>) -> String {
        let passes = taken.iter().any(|(_, why)| why.may_pass());
        let shortage = ShareShortage {
            sizes: sizes.to_vec(),
            taken,
            unreadable: Vec::new(),
            awaited: passes.then(|| GpuUuid::from("GPU-0")).into_iter().collect(),
        };
        error(&shortage, &[], None).line()
    }

    #[test]
    fn names_room_of_each_gpu() {
        let full = |holders: &[&str], foreign_mib| GpuObstacle::Full {
            free_mib: 6190,
            gives_out: 22574,
            foreign_mib,
            holders: holders.iter().map(|h| (*h).to_owned()).collect(),
        };
        assert_eq!(
            line(
                &[ShareSize::Memory(8192)],
                vec![(0, full(&["a", "b"], 0)), (1, full(&["c"], 300))]
            ),
            "cannot allocate a share of 8Gi: no GPU has room for it (GPU 0: 6190Mi of 22574Mi is free beside \
             containers a and b; GPU 1: 6190Mi of 22574Mi is free beside container c and processes without a \
             lease that use 300Mi); hint: run migctl list and nvidia-smi to see who uses the GPUs, or set \
             runmig.dev/wait to wait"
        );
        let many = line(
            &[ShareSize::Memory(8192)],
            vec![(0, full(&["a", "b", "", "d", "e"], 0))],
        );
        assert!(many.contains("beside containers a, b and 3 more"), "{many}");
        let mig = GpuObstacle::Used(GpuUse::Mig { pending: false });
        let never = [
            (0, mig),
            (1, GpuObstacle::TooLarge { gives_out: 22574 }),
            (2, GpuObstacle::TooSmall { memory_mib: 233 }),
            (3, GpuObstacle::OneProcess),
        ];
        let sizes = [
            ShareSize::Memory(1 << 20),
            ShareSize::Fraction { parts: 1, of: 64 },
        ];
        assert_eq!(
            line(&sizes, never.to_vec()),
            "cannot allocate a share of 1024Gi,1/64: no GPU has room for it (GPU 0: in MIG mode; GPU 1: it \
             gives out 22574Mi; GPU 2: the fraction is 233Mi there, less than 1Gi; GPU 3: its compute mode is \
             Exclusive_Process); hint: ask for a slice of a GPU in MIG mode (runmig.dev/slice)"
        );
        assert!(line(&sizes, Vec::new()).contains("the driver has no GPUs"));
    }
}
