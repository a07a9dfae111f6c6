//! Tests of who may pass whom (`backfill`).

use super::*;
use crate::model::GpuInstance;
use crate::placement::tests::{gpu, machine, named, words};
use crate::placement::{Reserved, choose};
use crate::request::Slice;
use proptest::prelude::*;

/// Somebody waits for a profile on every GPU.
fn awaiting(snapshot: &Snapshot, name: &str) -> Vec<Awaited> {
    could_use(snapshot, &Wanted::one(&named(name)))
}

fn lets(m: &Snapshot, ahead: &[Awaited], name: &str) -> Result<u32, String> {
    let asked = named(name);
    let wanted = Wanted {
        ahead,
        ..Wanted::one(&asked)
    };
    let chosen = choose(m, &[], &wanted);
    assert_eq!(
        is_held_up(m, &wanted),
        chosen.is_err(),
        "on an empty machine"
    );
    chosen.map(|d| d.placement.start).map_err(words)
}

#[test]
fn only_who_is_in_nobody_s_way_may_pass() {
    let m = machine(1);
    // A 4g.40gb goes nowhere but into the first half.
    let four = awaiting(&m, "4g.40gb");
    assert_eq!(lets(&m, &four, "1g.10gb"), Ok(6));
    assert_eq!(lets(&m, &four, "3g.40gb"), Ok(4));
    assert!(lets(&m, &four, "7g.80gb").is_err());
    let three = awaiting(&m, "3g.40gb");
    let line = lets(&m, &three, "1g.10gb").unwrap_err();
    assert!(
        line.starts_with("no room for 1g.10gb but what others wait for; hint: "),
        "{line}"
    );
    // The only engine of its kind.
    let engine = awaiting(&m, "1g.10gb+me");
    assert!(lets(&m, &engine, "1g.10gb").is_err());
}

#[test]
fn a_gpu_that_those_who_wait_cannot_use_is_free_to_all() {
    let mut m = machine(2);
    let asked = named("7g.80gb");
    let rules = [("GPU-1".to_owned(), "a rule".to_owned())];
    let wanted = Wanted {
        excluded: &rules,
        ..Wanted::one(&asked)
    };
    let ahead = could_use(&m, &wanted);
    assert_eq!(ahead.len(), 1);
    assert!(lets(&m, &ahead, "1g.10gb").is_ok());
    // So is one on which an administrator's instance stands in their way, and not ours.
    let ahead = awaiting(&m, "7g.80gb");
    assert!(lets(&m, &ahead, "1g.10gb").is_err());
    m.gpus[1].instances.push(GpuInstance {
        id: 1,
        profile_id: 19,
        placement: Placement { start: 6, size: 1 },
        compute_instances: Vec::new(),
    });
    assert!(lets(&m, &ahead, "1g.10gb").is_ok());
    let ours = [Reserved {
        gpu: "GPU-1".into(),
        profile_id: 19,
        placement: Placement { start: 6, size: 1 },
    }];
    let asked = named("1g.10gb");
    let wanted = Wanted {
        ahead: &ahead,
        ours: &ours,
        ..Wanted::one(&asked)
    };
    assert!(choose(&m, &ours, &wanted).is_err());
}

#[test]
fn what_a_rule_bars_is_not_chosen() {
    let m = machine(1);
    let barred = ["1g.10gb".to_owned(), "1g.20gb".to_owned()];
    let asked = Slice::Memory(5 << 30);
    let wanted = Wanted {
        barred: &barred,
        ..Wanted::one(&asked)
    };
    assert_eq!(choose(&m, &[], &wanted).unwrap().profile.name, "1g.10gb+me");
}

/// Puts slices where there is room for them, and gives where that was.
fn fill<'a>(gpu: &'a Gpu, mut room: Room<'a>, picks: &[(usize, prop::sample::Index)]) -> Room<'a> {
    for (which, pick) in picks {
        let profile = &gpu.profiles[*which];
        let places: Vec<Placement> = room.places(profile).collect();
        if !places.is_empty() {
            room = room.with(profile, places[pick.index(places.len())]);
        }
    }
    room
}

proptest! {
    /// Whatever lies on the GPU at some later time: where the one who waits could go without the one
    /// who passed, they can go with it.
    #[test]
    fn who_passes_delays_nobody(
        // Fewer than all that fit in memory could use.
        decoders in 2u32..6,
        others in prop::collection::vec((0usize..7, any::<prop::sample::Index>()), 0..2),
        later in prop::collection::vec((0usize..7, any::<prop::sample::Index>()), 0..8),
    ) {
        let mut described = gpu(0);
        described.profiles[6].decoders = decoders;
        let stay = fill(&described, Room::new(&described, &[], &[]), &others);
        described.instances = stay.taken().map(|l| GpuInstance {
            id: 0, profile_id: l.profile_id, placement: l.at, compute_instances: Vec::new(),
        }).collect();
        let gpu = &described;
        let room = Room::new(gpu, &[], &[]);
        for awaited in &gpu.profiles {
            let ahead = [Awaited { gpu: gpu.uuid.clone(), profile_id: awaited.id }];
            let wanted = Wanted { ahead: &ahead, ..Wanted::default() };
            let ahead = Ahead::on(gpu, &wanted);
            let all = gpu.profiles.iter().flat_map(|p| room.places(p).map(move |at| (p, at)));
            for (passing, at) in all.filter(|(p, at)| ahead.lets(p, *at)) {
                // Any world with the one who passed in it, and the same without.
                let with = fill(gpu, room.with(passing, at), &later);
                let mut without = with.clone();
                without.lying.retain(|l| l.at != at);
                prop_assert!(with.places(awaited).eq(without.places(awaited)));
            }
        }
    }
}
