//! Tests of backfill.

use super::*;
use crate::model::GpuInstance;
use crate::placement::tests::{gpu, machine, named, obstacle, slot};
use crate::placement::{Obstacle, choose};
use crate::request::Slice;
use proptest::prelude::*;

/// An earlier request waits for a profile on every GPU.
fn awaiting(snapshot: &Snapshot, name: &str) -> Vec<Reservation> {
    could_use(snapshot, &Constraints::one(&named(name)))
}

fn permits(m: &Snapshot, blockers: &[Reservation], name: &str) -> Result<u32, Obstacle> {
    let request = named(name);
    let constraints = Constraints {
        blockers,
        ..Constraints::one(&request)
    };
    let chosen = choose(m, &[], &constraints);
    assert_eq!(
        is_blocked(m, &constraints),
        chosen.is_err(),
        "on an empty machine"
    );
    chosen.map(|d| d.placement.start).map_err(obstacle)
}

#[test]
fn permits_only_harmless_slots() {
    let m = machine(1);
    // 4g.40gb fits only into the first half.
    let four = awaiting(&m, "4g.40gb");
    assert_eq!(permits(&m, &four, "1g.10gb"), Ok(6));
    assert_eq!(permits(&m, &four, "3g.40gb"), Ok(4));
    assert!(permits(&m, &four, "7g.80gb").is_err());
    let three = awaiting(&m, "3g.40gb");
    let reserved = Obstacle::Reserved {
        profile: "1g.10gb".into(),
    };
    assert_eq!(permits(&m, &three, "1g.10gb"), Err(reserved));
    // The only engine of its kind.
    let engine = awaiting(&m, "1g.10gb+me");
    assert!(permits(&m, &engine, "1g.10gb").is_err());
}

#[test]
fn permits_gpus_useless_to_blockers() {
    let mut m = machine(2);
    let request = named("7g.80gb");
    let rules = [("GPU-1".into(), "a rule".to_owned())];
    let constraints = Constraints {
        excluded: &rules,
        ..Constraints::one(&request)
    };
    let blockers = could_use(&m, &constraints);
    assert_eq!(blockers.len(), 1);
    assert!(permits(&m, &blockers, "1g.10gb").is_ok());
    // An administrator's instance makes a GPU useless to them for good, and ours does not.
    let blockers = awaiting(&m, "7g.80gb");
    assert!(permits(&m, &blockers, "1g.10gb").is_err());
    m.gpus[1].instances.push(GpuInstance {
        id: 1,
        profile_id: 19,
        placement: Placement { start: 6, size: 1 },
    });
    assert!(permits(&m, &blockers, "1g.10gb").is_ok());
    let ours = [slot(1, 19, 6, 1)];
    let request = named("1g.10gb");
    let constraints = Constraints {
        blockers: &blockers,
        ours: &ours,
        ..Constraints::one(&request)
    };
    assert!(choose(&m, &ours, &constraints).is_err());
}

#[test]
fn never_chooses_denied_profiles() {
    let m = machine(1);
    let denied_profiles = ["1g.10gb".to_owned(), "1g.20gb".to_owned()];
    let request = Slice::Memory(5 << 30);
    let constraints = Constraints {
        denied_profiles: &denied_profiles,
        ..Constraints::one(&request)
    };
    assert_eq!(
        choose(&m, &[], &constraints).unwrap().profile.name,
        "1g.10gb+me"
    );
}

/// Adds the picked slices that fit.
fn fill<'a>(
    gpu: &'a Gpu,
    mut occupancy: Occupancy<'a>,
    picks: &[(usize, prop::sample::Index)],
) -> Occupancy<'a> {
    for (which, pick) in picks {
        let profile = &gpu.profiles[*which];
        let places: Vec<Placement> = occupancy.places(profile).collect();
        if !places.is_empty() {
            occupancy = occupancy.with(profile, places[pick.index(places.len())]);
        }
    }
    occupancy
}

proptest! {
    /// Compares random later states of the GPU with and without the backfilled slice: both leave the queued
    /// request the same slots.
    #[test]
    fn backfill_delays_no_earlier_request(
        // Fewer than all that fit in memory could use.
        decoders in 2u32..6,
        others in prop::collection::vec((0usize..7, any::<prop::sample::Index>()), 0..2),
        later in prop::collection::vec((0usize..7, any::<prop::sample::Index>()), 0..8),
    ) {
        let mut described = gpu(0);
        described.profiles[6].decoders = decoders;
        let stay = fill(&described, Occupancy::new(&described, &[], &[]), &others);
        described.instances = stay.taken().map(|l| GpuInstance {
            id: 0, profile_id: l.profile_id, placement: l.at,
        }).collect();
        let gpu = &described;
        let occupancy = Occupancy::new(gpu, &[], &[]);
        for awaited in &gpu.profiles {
            let blockers = [Reservation { gpu: gpu.uuid.clone(), profile_id: awaited.id }];
            let constraints = Constraints { blockers: &blockers, ..Constraints::default() };
            let blockers = Backfill::on(gpu, &constraints);
            let all = gpu.profiles.iter().flat_map(|p| occupancy.places(p).map(move |at| (p, at)));
            for (passing, at) in all.filter(|(p, at)| blockers.permits(p, *at)) {
                // Any world with the one who passed in it, and the same without.
                let with = fill(gpu, occupancy.with(passing, at), &later);
                let mut without = with.clone();
                without.occupants.retain(|l| l.at != at);
                prop_assert!(with.places(awaited).eq(without.places(awaited)));
            }
        }
    }
}
