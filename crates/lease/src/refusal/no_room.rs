//! The words for a request that finds no room: whole GPUs, a share, a seat.

use super::{Refusal, UNREADABLE_HINT, Waited, count, queued_before, waited};
use crate::error::{Error, first_of, printable};
use crate::model::Shut;
use crate::placement::{GpuObstacle, GpuUse, NoRoom};
use crate::request::{self, Wanted};
use crate::store::Waiting;

/// The way out where no permitted level can hold the limit of a share.
pub(crate) const NO_LEVEL_HINT: &str = "as the administrator, fix one of these causes, or add none to sharing.enforcement: \
                                        then runmig books the memory, and nothing limits it";

/// Returns the error of a create. `blockers` are the earlier requests in the queue.
pub(crate) fn error(no: &NoRoom, blockers: &[Waiting], time: Option<Waited>) -> Error {
    let has_waited = time.is_some();
    let what = what(&no.wanted, &no.wanted.written());
    let Some(rejection) = &no.no_slice else {
        let mut text = vec![format!("cannot allocate {what}: {}", cause(no))];
        text.extend(queued_before(blockers));
        text.extend(time.as_ref().map(waited));
        return Error::new(text.join("; ")).hint(hint(no, has_waited));
    };
    let no_slice = Refusal {
        rejection,
        blockers,
        waited: time,
    };
    let no_slice = no_slice.error();
    if matches!(no.wanted, Wanted::Slices(_)) {
        return no_slice;
    }
    let taken = all_taken(no);
    let cause = match taken.as_str() {
        "" => format!("it needs a new slice, and runmig {no_slice}"),
        some => format!(
            "no slice with seats has room for it ({some}), and for a new slice runmig {no_slice}"
        ),
    };
    let error = Error::new(format!("cannot allocate {what}: {cause}"));
    error.hint(match (no.within_reach(), no_slice.advice()) {
        (0, Some(hint)) => hint.to_owned(),
        (0, None) => "run migctl gpus to see the GPUs".to_owned(),
        _ => see(
            "run migctl list to see who has seats in the slices",
            has_waited,
        ),
    })
}

/// Returns the error of a create that a limit denies. `asked`: the alternatives, as they were written.
pub(crate) fn denied(wanted: &Wanted, asked: &str, over: &Error) -> Error {
    let denied = Error::failed(format!("allocate {}", what(wanted, asked)));
    denied.caused_by(over.again()).again()
}

fn what(wanted: &Wanted, asked: &str) -> String {
    match wanted {
        Wanted::Slices(_) => asked.replace(',', " or "),
        Wanted::Gpus(n) => count(*n as usize, "whole GPU"),
        Wanted::Share(_) | Wanted::Seat(_) => format!("a {asked}"),
    }
}

fn all_taken(no: &NoRoom) -> String {
    let taken = { no.taken.iter() }.map(|(what, why)| format!("{what}: {}", obstacle(why)));
    let all = taken.chain(no.unreadable.iter().map(|e| printable(e)));
    all.collect::<Vec<_>>().join("; ")
}

fn cause(no: &NoRoom) -> String {
    let all = all_taken(no);
    let is_share = matches!(no.wanted, Wanted::Share(_));
    let what = match no.free.len() {
        0 if all.is_empty() => return "the driver has no GPUs".to_owned(),
        0 if is_share => "no GPU has room for it".to_owned(),
        0 => "no GPU is free".to_owned(),
        1 => "only 1 GPU is free".to_owned(),
        n => format!("only {n} GPUs are free"),
    };
    match all.is_empty() {
        true => what,
        false => format!("{what} ({all})"),
    }
}

/// Returns the words for the obstacle of one GPU.
pub fn obstacle(why: &GpuObstacle) -> String {
    match why {
        GpuObstacle::Used(usage) => used(usage),
        GpuObstacle::Excluded(why)
        | GpuObstacle::Unfit(why)
        | GpuObstacle::Closed(Shut { why, .. }) => printable(why),
        GpuObstacle::EndsMig => {
            "its next reset switches MIG off; nvidia-smi -mig 1 keeps it on, and nvidia-smi --gpu-reset resets it"
                .to_owned()
        }
        GpuObstacle::Queued => "reserved for an earlier request".to_owned(),
        GpuObstacle::Full {
            free_mib,
            gives_out,
            foreign_mib,
            holders,
        } => {
            let shares = (!holders.is_empty()).then(|| sharers(holders));
            let foreign = (*foreign_mib > 0)
                .then(|| format!("processes without a lease that use {foreign_mib}Mi"));
            let beside: Vec<String> = shares.into_iter().chain(foreign).collect();
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
        GpuObstacle::NoFigure => {
            let why = "the driver does not tell how much memory it has";
            format!("{why}, so no part of it can be booked")
        }
        GpuObstacle::OneProcess => "its compute mode is Exclusive_Process".to_owned(),
        GpuObstacle::OtherLevel(level) => format!("its shares have the level {level}"),
        GpuObstacle::NoLevel(reasons) => {
            let reasons = printable(reasons);
            format!("no permitted level can hold the limit there ({reasons})")
        }
    }
}

/// Names the holders of shares: `container a`, `containers a, b and 3 more`. Those without a name come last.
fn sharers(holders: &[String]) -> String {
    const SHOWN: usize = 2;
    let names = holders.iter().filter(|name| !name.is_empty());
    let names: Vec<String> = names.take(SHOWN).map(|name| printable(name)).collect();
    let s = if holders.len() == 1 { "" } else { "s" };
    let noun = format!("container{s}");
    match names.is_empty() {
        true => format!("{} {noun}", holders.len()),
        false => format!("{noun} {}", first_of(&names, holders.len())),
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

fn hint(no: &NoRoom, has_waited: bool) -> String {
    let is_share = matches!(no.wanted, Wanted::Share(_));
    let remedy = no.taken.iter().find_map(|(_, why)| why.remedy());
    // Where another obstacle may pass, its hint helps more.
    let only_unreadable = no.within_reach() == no.unreadable.len();
    let remedy = remedy.or(only_unreadable.then_some(UNREADABLE_HINT));
    if no.may_pass() {
        let who = match (no.has_foreign(), is_share) {
            (true, _) => "run migctl list and nvidia-smi to see who uses the GPUs",
            (false, true) => "run migctl list to see who shares the GPUs",
            (false, false) => "run migctl list to see who holds the GPUs",
        };
        return see(remedy.unwrap_or(who), has_waited);
    }
    let is = |is_it: fn(&GpuObstacle) -> bool| no.taken.iter().any(|(_, why)| is_it(why));
    match no.within_reach() {
        0 if is(|why| matches!(why, GpuObstacle::NoLevel(_))) => NO_LEVEL_HINT.to_owned(),
        0 if is(|why| matches!(why, GpuObstacle::Used(GpuUse::Mig { pending: false }))) => {
            format!("ask for a slice of a GPU in MIG mode ({})", request::SLICE)
        }
        0 if is(|why| *why == GpuObstacle::NoFigure) => {
            format!("ask for a whole GPU ({})", request::GPU)
        }
        0 => "run migctl gpus to see the GPUs".to_owned(),
        n => format!("ask for at most {n}"),
    }
}

/// Returns the hint to do something, and to wait if the create has not waited.
pub(super) fn see(act: &str, has_waited: bool) -> String {
    match has_waited {
        true => act.to_owned(),
        false => format!("{act}, or set {} to wait", request::WAIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Level;

    fn line(count: u32, free: &[u32], taken: &[(u32, GpuObstacle)]) -> String {
        error(&no_room(count, free, taken), &[], None).line()
    }

    fn no_room(count: u32, free: &[u32], taken: &[(u32, GpuObstacle)]) -> NoRoom {
        let named = |(n, why): &(u32, GpuObstacle)| (format!("GPU {n}"), why.clone());
        NoRoom {
            wanted: Wanted::Gpus(count),
            free: free.to_vec(),
            taken: taken.iter().map(named).collect(),
            unreadable: Vec::new(),
            awaited: Vec::new(),
            no_slice: None,
        }
    }

    /// A GPU that cannot be read may be free, but who holds the others is the better answer.
    #[test]
    fn hint_fits_what_may_pass() {
        let holder = Some("web".to_owned());
        let held = (0, GpuObstacle::Used(GpuUse::Exclusive { holder }));
        let hint = |taken: &[(u32, GpuObstacle)]| {
            let mut no = no_room(1, &[], taken);
            no.unreadable
                .push("cannot read GPU 1: GPU is lost".to_owned());
            error(&no, &[], None).advice().unwrap().to_owned()
        };
        assert!(hint(&[]).starts_with(UNREADABLE_HINT));
        assert!(hint(&[held]).starts_with("run migctl list to see who holds the GPUs"));
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

    #[test]
    fn words_of_each_obstacle() {
        let full = |foreign_mib, holders: &[&str]| GpuObstacle::Full {
            free_mib: 1,
            gives_out: 2,
            foreign_mib,
            holders: holders.iter().map(|name| (*name).to_owned()).collect(),
        };
        let shut = Shut {
            why: "sick".to_owned(),
            remedy: "reset it".to_owned(),
        };
        for (why, words) in rows! {
            full(0, &[]) => "1Mi of 2Mi is free";
            full(3, &[]) => "1Mi of 2Mi is free beside processes without a lease that use 3Mi";
            full(0, &["a"]) => "1Mi of 2Mi is free beside container a";
            full(3, &["a", "b", "", ""]) => "1Mi of 2Mi is free beside containers a, b and 2 more and processes without \
                a lease that use 3Mi";
            full(0, &["", ""]) => "1Mi of 2Mi is free beside 2 containers";
            GpuObstacle::Excluded("a rule".to_owned()) => "a rule";
            GpuObstacle::Unfit("a profile".to_owned()) => "a profile";
            GpuObstacle::Closed(shut) => "sick";
            GpuObstacle::EndsMig => "its next reset switches MIG off; nvidia-smi -mig 1 keeps it on, and nvidia-smi \
                --gpu-reset resets it";
            GpuObstacle::Queued => "reserved for an earlier request";
            GpuObstacle::Crowded { most: 1 } => "it has 1 share, as many as it takes (sharing.shares_per_gpu)";
            GpuObstacle::TooLarge { gives_out: 2 } => "it gives out 2Mi";
            GpuObstacle::TooSmall { memory_mib: 9 } => "the fraction is 9Mi there, less than 1Gi";
            GpuObstacle::NoFigure => "the driver does not tell how much memory it has, so no part of it can be booked";
            GpuObstacle::OneProcess => "its compute mode is Exclusive_Process";
            GpuObstacle::OtherLevel(Level::Mps) => "its shares have the level mps";
            GpuObstacle::NoLevel("no MPS".to_owned()) => "no permitted level can hold the limit there (no MPS)";
            GpuObstacle::unknown("no answer") => "no answer";
        } {
            assert_eq!(obstacle(&why), words);
        }
        let shared = |holders: &[&str]| GpuUse::Shared {
            holders: holders.iter().map(|name| (*name).to_owned()).collect(),
            booked_mib: 7,
            level: Level::None,
        };
        for (usage, words) in rows! {
            GpuUse::Mig { pending: true } => "in MIG mode after the next reset";
            GpuUse::Free => "free";
            GpuUse::Exclusive { holder: None } => "a record in the ledger holds it";
            GpuUse::Prohibited => "its compute mode is Prohibited";
            shared(&["a"]) => "container a has shares of 7Mi, level none";
            shared(&["a", "b"]) => "containers a and b have shares of 7Mi, level none";
        } {
            assert_eq!(used(&usage), words);
        }
    }
}
