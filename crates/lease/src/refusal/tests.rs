use super::*;
use crate::model::{OperationId, Placement, Profile};
use crate::placement::{DefragPlan, GpuObstacle};
use crate::request;
use crate::request::Alternative;
use crate::store::Waiter;

fn cause(request: &str, obstacle: Obstacle) -> Cause {
    let all = request::alternatives(request).unwrap();
    let [request]: [Alternative; 1] = all.try_into().unwrap();
    Cause {
        request,
        found: 0,
        obstacle,
    }
}

fn line(cause: Cause) -> String {
    refused(&Rejection::from(cause))
}

/// Returns the line of a create that was never to wait, and finds no queue.
fn refused(rejection: &Rejection) -> String {
    let refusal = Refusal {
        rejection,
        blockers: &[],
        waited: None,
    };
    refusal.error().line()
}

fn left_out(rules: &[&str], unreadable: &[&str]) -> LeftOut {
    let rules = (0..).zip(rules);
    LeftOut {
        excluded: rules
            .map(|(gpu, rule)| (gpu, GpuObstacle::Excluded((*rule).to_owned())))
            .collect(),
        unreadable: unreadable.iter().map(|error| (*error).to_owned()).collect(),
    }
}

fn shortage() -> Shortage {
    Shortage {
        profile: "3g.40gb".into(),
        gpus: 2,
        free_slices: 6,
        total_slices: 16,
        most_free: 4,
        needed: 4,
        exhausted: Vec::new(),
        quarantined: 0,
        left_out: LeftOut::default(),
        in_the_way: Vec::new(),
        search: None,
    }
}

/// Returns the line for a request that finds no slot.
fn without_slot(request: &str, shortage: Shortage) -> String {
    line(cause(request, Obstacle::NoSlot(Box::new(shortage))))
}

const FREE: &str = "(6 of 16 memory slices are free on 2 GPUs, at most 4 on one)";
const LIST: &str =
    "; hint: run migctl list to see who holds the slices, or set runmig.dev/wait to wait";

#[test]
fn names_obstacles_that_never_pass() {
    let excluded = |all: &[GpuObstacle]| {
        Obstacle::GpusExcluded(LeftOut {
            excluded: (0..).zip(all.iter().cloned()).collect(),
            ..LeftOut::default()
        })
    };
    let rule = |words: &str| Obstacle::GpusExcluded(left_out(&[words], &[]));
    let unfit = GpuObstacle::Unfit("a slice of 1g.10gb has 9728 MiB".into());
    let no_mig = |gpus, unreadable: &[&str]| Obstacle::NoMigGpu {
        gpus,
        left_out: left_out(&[], unreadable),
    };
    let mig_off = |pending: &[u32]| Obstacle::MigOff {
        gpus: vec![0, 1],
        pending: pending.to_vec(),
        left_out: LeftOut::default(),
    };
    let unknown = Obstacle::UnknownProfile {
        offered: vec!["7g.80gb".into(), "4g.40gb".into()],
    };
    let too_much = |needed_compute, is_restricted| Obstacle::TooMuchMemory {
        needed_compute,
        is_restricted,
        largest: Some(Profile {
            name: "7g.80gb".into(),
            memory_mib: 80640,
            compute_slices: 7,
            ..Profile::default()
        }),
    };
    let too_many = |most| Obstacle::TooMany {
        gpus: 2,
        profile: "4g.40gb".into(),
        most,
    };
    for (request, obstacle, expected) in rows! {
        "1g.10gb", excluded(&[unfit, GpuObstacle::EndsMig]) =>
            "no GPU in MIG mode can take it (GPU 0: a slice of 1g.10gb has 9728 MiB; GPU 1: its next reset switches \
             MIG off; nvidia-smi -mig 1 keeps it on, and nvidia-smi --gpu-reset resets it); hint: ask for another \
             share, or for a larger slice";
        "1g.10gb", excluded(&[GpuObstacle::EndsMig]) =>
            "no GPU in MIG mode can take it (GPU 0: its next reset switches MIG off; nvidia-smi -mig 1 keeps it on, \
             and nvidia-smi --gpu-reset resets it); hint: run one of these commands for the GPU";
        "1g.10gb", rule("for team-a by policy") =>
            "every GPU in MIG mode is excluded (GPU 0: for team-a by policy); hint: check [policy] and [kubernetes] \
             in the configuration";
        "1g.10gb", no_mig(2, &[]) =>
            "no GPU supports MIG (the driver lists 2 GPUs); hint: use an A30, A100, H100 or a later data-centre GPU";
        "1g.10gb", no_mig(0, &["read GPU 0: GPU is lost"]) =>
            "no GPU can be read (read GPU 0: GPU is lost); hint: run nvidia-smi, and check the kernel log for the \
             GPU's state, or set runmig.dev/wait to wait";
        "1g.10gb", mig_off(&[]) =>
            "MIG is off on every GPU that supports it (GPU 0, 1); hint: run nvidia-smi -i 0,1 -mig 1";
        "1g.10gb", mig_off(&[1]) =>
            "MIG is off on every GPU that supports it (GPU 0, 1); hint: run nvidia-smi -i 1 --gpu-reset, or reboot";
        "1g.10gb", Obstacle::FewComputeSlices { has: 1, needed: 2 } =>
            "the profile has 1 compute slice, and the request needs at least 2; hint: request a larger profile, or \
             fewer compute slices";
        "9g.10gb", unknown =>
            "no GPU offers the profile; hint: request one of 7g.80gb, 4g.40gb (nearest first)";
        "90Gi", too_much(0, false) =>
            "no profile has 90Gi of memory; hint: request at most 7g.80gb, which has 80640 MiB";
        "90Gi", too_much(2, true) =>
            "no profile that policy.profiles allows has 90Gi of memory and 2 compute slices; hint: request at most \
             7g.80gb, which has 80640 MiB and 7 compute slices";
        "4g.40gb*3", too_many(2) => "2 GPUs hold at most 2 of 4g.40gb; hint: request fewer slices";
        "4g.40gb*3", too_many(0) => "2 GPUs cannot hold 4g.40gb together; hint: request fewer slices";
    } {
        let expected = format!("cannot allocate {request}: {expected}");
        assert_eq!(line(cause(request, obstacle)), expected);
    }
}

#[test]
fn names_shortages_with_their_figures() {
    let exhausted = Exhaustion {
        gpu: 0,
        profile: "3g.40gb".into(),
        what: Exhausted::Instances,
    };
    let lacking = Shortage {
        exhausted: vec![exhausted],
        ..shortage()
    };
    let large = Shortage {
        needed: 5,
        ..shortage()
    };
    for (shortage, expected) in rows! {
        lacking => "GPU 0 has no more instances of 3g.40gb";
        large => "no single GPU has enough free memory slices";
        shortage() => "the free memory is fragmented";
    } {
        assert_eq!(
            without_slot("3g.40gb", shortage),
            format!("cannot allocate 3g.40gb: {expected} {FREE}{LIST}")
        );
    }
    let full = Shortage {
        needed: 8,
        ..shortage()
    };
    assert_eq!(
        without_slot("7g.80gb", full),
        format!(
            "cannot allocate 7g.80gb: too few memory slices are free (6 of 16 on 2 GPUs, at most 4 \
             on one){LIST}"
        )
    );
    let left = Shortage {
        quarantined: 1,
        left_out: left_out(&["for team-a"], &["read GPU 3: GPU is lost"]),
        ..shortage()
    };
    assert_eq!(
        without_slot("20Gi", left),
        format!(
            "cannot allocate 20Gi (3g.40gb): the free memory is fragmented {FREE}; 1 memory slice \
             is quarantined, as runmig could not free it; GPU 0: for team-a; read GPU 3: GPU is \
             lost{LIST}"
        )
    );
}

#[test]
fn names_what_is_in_the_way() {
    let one = |gpu, names: &[&str], ends| InTheWay {
        gpu,
        slots: Vec::new(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ends,
    };
    let foreign = "GPU instance 3 (2g.20gb at 0:2), which runmig did not make";
    let said = |in_the_way| {
        let no = Shortage {
            in_the_way,
            ..shortage()
        };
        without_slot("4g.40gb", no)
    };
    let train = || one(0, &["container train (3g.40gb)"], true);
    let line = said(vec![
        train(),
        one(1, &["claim a/b (1g.10gb)", foreign], false),
    ]);
    assert_eq!(
        line,
        format!(
            "cannot allocate 4g.40gb: the free memory is fragmented {FREE}; on GPU 0 container train (3g.40gb) is in the way, \
             on GPU 1 claim a/b (1g.10gb) and {foreign}{LIST}"
        )
    );
    // No container's end helps here, so neither does a wait.
    let line = said(vec![one(1, &[foreign], false)]);
    assert!(
        line.contains("runmig did not make, is in the way; hint"),
        "{line}"
    );
    assert!(!line.contains("wait"), "{line}");
    assert!(line.contains("list --all"), "{line}");
    // Nobody should destroy what a container has.
    let held = "container train (3g.40gb, which runmig did not make)";
    let line = said(vec![one(1, &[held], false)]);
    let words = "their containers; stop these, then destroy";
    assert!(line.contains(words), "{line}");
    let line = said(vec![one(1, &["3g.40gb at 0:4 of layout a"], false)]);
    let words = "3g.40gb at 0:4 of layout a is in the way; hint: set adopt = true to let";
    assert!(line.contains(words), "{line}");
    let many = (0..5).map(|gpu| one(gpu, &["a (x)", "b", "c", "d", "e"], true));
    let line = said(many.collect());
    assert!(
        line.contains("on GPU 2 a (x), b, c and 2 more, others on 2 more GPUs; hint"),
        "{line}"
    );
    assert!(!line.contains("GPU 3"), "{line}");
}

#[test]
fn names_the_moves_that_help() {
    let plan = DefragPlan {
        sites: Vec::new(),
        moves: vec![Move {
            which: 0,
            profile: "1g.10gb".into(),
            from_gpu: 0,
            from: Placement { start: 2, size: 1 },
            to_gpu: 1,
            to: Placement { start: 6, size: 1 },
        }],
    };
    let searched = |result| Shortage {
        search: Some(result),
        ..shortage()
    };
    assert_eq!(
        without_slot("3g.40gb", searched(SearchResult::Plan(plan))),
        format!(
            "cannot allocate 3g.40gb: the free memory is fragmented, and a move of 1g.10gb at 2:1 \
             of GPU 0 makes room {FREE}; hint: run migctl explain 3g.40gb to see which \
             containers to restart, or set runmig.dev/wait to wait"
        )
    );
    for (result, expected) in rows! {
        SearchResult::Immovable => "the slices in the way cannot be moved";
        SearchResult::Impossible => "no move of other slices makes room";
        SearchResult::Beyond(0) => "the free memory is fragmented, and the search for moves gave up";
        SearchResult::Beyond(2) =>
            "the free memory is fragmented, and the search for moves gave up after all plans of up to 2 restarts";
    } {
        let line = without_slot("3g.40gb", searched(result));
        let expected = format!("cannot allocate 3g.40gb: {expected} {FREE}");
        assert!(line.starts_with(&expected), "{line}");
    }
}

#[test]
fn joins_alternatives_with_equal_obstacles() {
    let unknown = || Obstacle::UnknownProfile {
        offered: vec!["7g.80gb".into()],
    };
    let both = Rejection::of_all(vec![
        cause("8g.10gb", unknown()).into(),
        cause("9g.10gb", unknown()).into(),
    ]);
    assert_eq!(
        refused(&both),
        "cannot allocate 8g.10gb or 9g.10gb: no GPU offers the profile; hint: request one of \
         7g.80gb (nearest first)"
    );
    let second = Rejection::of_all(vec![
        cause("9g.10gb", unknown()).into(),
        cause("3g.40gb", Obstacle::NoSlot(Box::new(shortage()))).into(),
    ]);
    assert!(second.may_pass());
    assert_eq!(
        refused(&second),
        format!(
            "cannot allocate 9g.10gb: no GPU offers the profile; cannot allocate 3g.40gb: the free \
             memory is fragmented {FREE}{LIST}"
        )
    );
}

#[test]
fn counts_slices_that_found_a_slot() {
    let several = Cause {
        found: 1,
        ..cause("3g.40gb*2", Obstacle::NoSlot(Box::new(shortage())))
    };
    assert_eq!(
        line(several),
        format!(
            "cannot allocate 3g.40gb*2: after 1 of 2 slices, the free memory is fragmented \
             {FREE}{LIST}"
        )
    );
}

fn waiting(number: u64, container: &str, request: &str) -> Waiting {
    Waiting {
        number,
        operation: OperationId::new("o"),
        waiter: Waiter {
            container: container.into(),
            request: request.into(),
            ..Waiter::default()
        },
    }
}

#[test]
fn names_earlier_requests_and_wait() {
    let reserved = Rejection::from(cause(
        "1g.10gb",
        Obstacle::Reserved {
            profile: "1g.10gb".into(),
        },
    ));
    let train = [waiting(1, "train", "7g.80gb")];
    let refusal = Refusal {
        rejection: &reserved,
        blockers: &train,
        waited: None,
    };
    assert_eq!(
        refusal.error().line(),
        format!(
            "cannot allocate 1g.10gb: the free slots are reserved for 1 earlier request (container \
             train, 7g.80gb){LIST}"
        )
    );
    let short = Rejection::from(cause("3g.40gb", Obstacle::NoSlot(Box::new(shortage()))));
    let many = [
        waiting(1, "a", "7g.80gb"),
        waiting(2, "b\u{7}", "2g.20gb"),
        waiting(3, "c", "1g.10gb"),
        waiting(4, "d", "1g.10gb"),
    ];
    let refusal = Refusal {
        rejection: &short,
        blockers: &many,
        waited: Some(Waited {
            time: Duration::from_secs(90),
            cut_by: Some("containerd"),
        }),
    };
    assert_eq!(
        refusal.error().line(),
        format!(
            "cannot allocate 3g.40gb: the free memory is fragmented {FREE}; 4 earlier requests wait \
             (container a, 7g.80gb; container b\\u{{7}}, 2g.20gb; container c, 1g.10gb; …); the \
             create waited 1m 30s, as containerd gives up soon after; hint: run migctl list to see \
             who holds the slices"
        )
    );
}

#[test]
fn names_the_obstacle_of_one_gpu() {
    let gpu = crate::model::Gpu::default();
    let profile = Profile {
        name: "3g.40gb".to_owned(),
        ..Profile::default()
    };
    let rule = GpuObstacle::Excluded("reserved for team-a".to_owned());
    for (verdict, words) in rows! {
        Verdict::Fits(Vec::new()) => None;
        Verdict::Full => Some("3 of 8 memory slices are free");
        Verdict::Queued => Some("3 of 8 memory slices are free, and reserved for earlier requests");
        Verdict::NoSlot => Some("3 of 8 memory slices are free, but no slot of 3g.40gb is");
        Verdict::Exhausted(Exhausted::Instances) =>
            Some("3 of 8 memory slices are free, but no more instances of 3g.40gb");
        Verdict::Exhausted(Exhausted::Decoders) => Some("3 of 8 memory slices are free, but no more decoders");
        Verdict::NoProfile => Some("the GPU offers no such profile");
        Verdict::MigOff => Some("MIG is off");
        Verdict::MigPending => Some("MIG is off until the next reset");
        Verdict::NoMig => Some("the GPU does not support MIG");
        Verdict::Excluded(rule) => Some("reserved for team-a");
    } {
        let report = GpuReport {
            gpu: &gpu,
            profile: Some(&profile),
            free_slices: 3,
            total_slices: 8,
            quarantined: 0,
            verdict,
        };
        assert_eq!(on_gpu(&report).as_deref(), words);
    }
}
