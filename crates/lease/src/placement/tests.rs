use super::*;
use crate::model::{Closed, Gpu, GpuInstance, GpuUuid, MigMode, Placement, Profile, Snapshot};
use crate::request::{Alternative, Slice};
use proptest::prelude::*;

/// A profile: name, id, compute slices, MiB, decoders, ofas, most, places side by side, and their size.
type Row = (&'static str, u32, u32, u64, u32, u32, u32, u32, u32);
/// A100-80GB as the driver describes it.
const A100: &[Row] = &[
    ("1g.10gb", 19, 1, 9728, 0, 0, 7, 7, 1),
    ("1g.10gb+me", 20, 1, 9728, 1, 1, 1, 7, 1),
    ("1g.20gb", 15, 1, 19968, 1, 0, 4, 4, 2),
    ("2g.20gb", 14, 2, 19968, 1, 0, 3, 3, 2),
    ("3g.40gb", 9, 3, 40192, 2, 0, 2, 2, 4),
    ("4g.40gb", 5, 4, 40192, 2, 0, 1, 1, 4),
    ("7g.80gb", 0, 7, 80640, 5, 1, 1, 1, 8),
];

fn starts(places: u32, size: u32) -> impl Iterator<Item = u32> {
    (0..places).map(move |n| n * size)
}

pub(super) fn gpu(index: u32) -> Gpu {
    let profile = |row: &Row| {
        let &(name, id, compute_slices, memory_mib, decoders, ofas, max_instances, places, size) =
            row;
        Profile {
            name: name.into(),
            id,
            compute_slices,
            memory_mib,
            multiprocessors: 14 * compute_slices,
            copy_engines: compute_slices,
            decoders,
            jpegs: ofas,
            ofas,
            max_instances,
            placements: starts(places, size)
                .map(|start| Placement { start, size })
                .collect(),
            ..Profile::default()
        }
    };
    Gpu {
        index,
        uuid: GpuUuid::new(format!("GPU-{index}")),
        mig: MigMode::Enabled,
        profiles: A100.iter().map(profile).collect(),
        ..Gpu::default()
    }
}

/// A place on a GPU of a machine.
pub(super) fn slot(gpu: u32, profile_id: u32, start: u32, size: u32) -> Slot {
    let gpu = GpuUuid::new(format!("GPU-{gpu}"));
    Slot::new(&gpu, profile_id, Placement { start, size })
}

pub(super) fn machine(count: u32) -> Snapshot {
    Snapshot {
        gpus: (0..count).map(gpu).collect(),
        ..Snapshot::default()
    }
}

pub(super) fn named(name: &str) -> Slice {
    Slice::Profile(name.parse().unwrap())
}

/// Creates the chosen instance on the machine, as the driver would.
pub(super) fn take(
    snapshot: &mut Snapshot,
    request: &Slice,
) -> Result<(u32, String, Placement), Rejection> {
    let d = choose(snapshot, &[], &Constraints::one(request))?;
    let (index, name, placement) = (d.gpu.index, d.profile.name.clone(), d.placement);
    let instance = GpuInstance {
        id: 0,
        profile_id: d.profile.id,
        placement,
    };
    snapshot.gpus[index as usize].instances.push(instance);
    Ok((index, name, placement))
}

/// The obstacle of a request with one alternative.
pub(super) fn obstacle(rejection: Rejection) -> Obstacle {
    match rejection.causes() {
        [cause] => cause.obstacle.clone(),
        causes => panic!("{causes:?}"),
    }
}

#[test]
fn fills_gpu_with_seven_smallest_slices() {
    let mut m = machine(1);
    for _ in 0..7 {
        take(&mut m, &named("1g.10gb")).unwrap();
    }
    let rejection = take(&mut m, &named("1g.10gb")).unwrap_err();
    assert!(rejection.may_pass());
    let expected = Shortage {
        profile: "1g.10gb".into(),
        gpus: 1,
        free_slices: 1,
        total_slices: 8,
        most_free: 1,
        needed: 1,
        exhausted: vec![Exhaustion {
            gpu: 0,
            profile: "1g.10gb".into(),
            what: Exhausted::Instances,
        }],
        quarantined: 0,
        left_out: LeftOut::default(),
        // Without the ledger each of them counts as an administrator's.
        in_the_way: vec![InTheWay {
            gpu: 0,
            slots: vec![slot(0, 19, 0, 1)],
            names: Vec::new(),
            ends: false,
        }],
        search: None,
    };
    assert_eq!(obstacle(rejection), Obstacle::NoSlot(Box::new(expected)));
}

#[test]
fn keeps_large_slots_free() {
    let mut m = machine(1);
    assert_eq!(take(&mut m, &named("1g.10gb")).unwrap().2.start, 6);
    assert_eq!(take(&mut m, &named("4g.40gb")).unwrap().2.start, 0);
    assert_eq!(take(&mut m, &named("2g.20gb")).unwrap().2.start, 4);
}

#[test]
fn respects_engine_limits() {
    let mut m = machine(1);
    take(&mut m, &named("1g.10gb+me")).unwrap();
    assert!(take(&mut m, &named("1g.10gb+me")).is_err());
    take(&mut m, &named("1g.10gb")).unwrap();
}

#[test]
fn memory_selects_smallest_sufficient_profile() {
    let mut m = machine(1);
    let smallest = |m: &mut Snapshot, gib: u64| take(m, &Slice::Memory(gib << 30)).map(|t| t.1);
    // 1g.10gb has 9728 MiB, and 2g.20gb 19968.
    for (gib, name) in [(5, "1g.10gb"), (10, "1g.20gb"), (20, "3g.40gb")] {
        assert_eq!(smallest(&mut m, gib).unwrap(), name);
    }
    let too_much = Obstacle::TooMuchMemory {
        needed_compute: 0,
        is_restricted: false,
        largest: m.gpus[0].profile(0).cloned(),
    };
    assert_eq!(obstacle(smallest(&mut m, 100).unwrap_err()), too_much);
}

fn rejected(machine: &Snapshot, constraints: &Constraints<'_>) -> Obstacle {
    let rejection = choose(machine, &[], constraints).unwrap_err();
    assert!(!rejection.may_pass());
    obstacle(rejection)
}

#[test]
fn offers_nearest_profiles_first() {
    let found = rejected(&machine(2), &Constraints::one(&named("1g.5gb")));
    let Obstacle::UnknownProfile { offered } = found else {
        panic!("{found:?}");
    };
    let nearest = ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb"];
    assert_eq!(offered[..4], nearest, "{offered:?}");
    // A GPU that gives nothing now still tells what there is.
    let mut closed = machine(1);
    closed.gpus[0].closed = Some(Closed::default());
    let found = rejected(&closed, &Constraints::one(&named("1g.5gb")));
    assert_eq!(found, Obstacle::UnknownProfile { offered });
}

#[test]
fn names_first_what_ends_one_day() {
    let mut m = machine(2);
    let request = named("7g.80gb");
    take(&mut m, &request).unwrap();
    take(&mut m, &request).unwrap();
    let constraints = Constraints {
        ours: &[slot(1, 0, 0, 8)],
        ..Constraints::one(&request)
    };
    let found = obstacle(choose(&m, &[], &constraints).unwrap_err());
    let Obstacle::NoSlot(shortage) = found else {
        panic!("{found:?}");
    };
    let gpus = shortage.in_the_way.iter().map(|way| (way.gpu, way.ends));
    assert_eq!(gpus.collect::<Vec<_>>(), [(1, true), (0, false)]);
}

#[test]
fn tells_mig_off_from_no_mig() {
    let mut m = machine(2);
    m.gpus.iter_mut().for_each(|g| g.mig = MigMode::Disabled);
    m.gpus[1].mig_pending = Some(MigMode::Enabled);
    let request = named("1g.10gb");
    let off = Obstacle::MigOff {
        gpus: vec![0, 1],
        pending: vec![1],
        left_out: LeftOut::default(),
    };
    assert_eq!(rejected(&m, &Constraints::one(&request)), off);
    m.gpus.iter_mut().for_each(|g| g.mig = MigMode::Unsupported);
    let none = |left_out| Obstacle::NoMigGpu { gpus: 2, left_out };
    let never = rejected(&m, &Constraints::one(&request));
    assert_eq!(never, none(LeftOut::default()));
    // What cannot be read may come back.
    m.unreadable.push((2, "GPU is lost".into()));
    let now = choose(&m, &[], &Constraints::one(&request)).unwrap_err();
    assert!(now.may_pass(), "{now:?}");
    let unreadable = vec!["GPU is lost".into()];
    let left_out = LeftOut {
        excluded: Vec::new(),
        unreadable,
    };
    assert_eq!(obstacle(now), none(left_out));
}

#[test]
fn leaves_promised_slots_alone() {
    let m = machine(1);
    let promised = [slot(0, 0, 0, 8)];
    assert!(choose(&m, &promised, &Constraints::one(&named("1g.10gb"))).is_err());
}

proptest! {
    /// Compares random arrivals and departures with a plain reference.
    #[test]
    fn never_overlaps_and_refuses_only_truthfully(
        steps in prop::collection::vec((0usize..7, any::<bool>(), any::<prop::sample::Index>()), 1..80)
    ) {
        let mut m = machine(2);
        for (which, goes, pick) in steps {
            let held: Vec<(usize, usize)> = m.gpus.iter().enumerate()
                .flat_map(|(g, gpu)| (0..gpu.instances.len()).map(move |i| (g, i))).collect();
            if goes && !held.is_empty() {
                let (g, i) = held[pick.index(held.len())];
                m.gpus[g].instances.remove(i);
                continue;
            }
            let (name, id, slices, .., places, size) = A100[which];
            let fits_somewhere = m.gpus.iter().any(|gpu| {
                let sum = |f: fn(&Profile) -> u32| gpu.instances.iter()
                    .map(|i| f(gpu.profile(i.profile_id).unwrap())).sum::<u32>();
                let p = gpu.profile(id).unwrap();
                let same = gpu.instances.iter().filter(|i| i.profile_id == id).count() as u32;
                same < p.max_instances
                    && sum(|p| p.compute_slices) + slices <= 7
                    && sum(|p| p.ofas) + p.ofas <= 1
                    && sum(|p| p.decoders) + p.decoders <= 5
                    && starts(places, size).any(|s| gpu.instances.iter().all(|i| {
                        i.placement.start >= s + size || s >= i.placement.start + i.placement.size
                    }))
            });
            prop_assert_eq!(take(&mut m, &named(name)).is_ok(), fits_somewhere);
            for gpu in &m.gpus {
                for (i, a) in gpu.instances.iter().enumerate() {
                    for b in &gpu.instances[i + 1..] {
                        prop_assert!(!a.placement.overlaps(b.placement));
                    }
                }
            }
        }
    }
}

#[test]
fn takes_first_alternative_that_fits() {
    let m = machine(1);
    let request = [named("7g.99gb"), named("3g.40gb"), named("1g.10gb")];
    let constraints = Constraints {
        alternatives: &request,
        ..Constraints::default()
    };
    assert_eq!(
        choose(&m, &[], &constraints).unwrap().profile.name,
        "3g.40gb"
    );
    let constraints = Constraints {
        alternatives: &request[..1],
        min_compute: 2,
        ..constraints
    };
    let found = rejected(&m, &constraints);
    assert!(
        matches!(found, Obstacle::UnknownProfile { .. }),
        "{found:?}"
    );
}

#[test]
fn respects_least_compute_slices() {
    let m = machine(1);
    let with = |slice: &Slice, min_compute| {
        let constraints = Constraints {
            min_compute,
            ..Constraints::one(slice)
        };
        choose(&m, &[], &constraints).map(|d| d.profile.name.clone())
    };
    let gib19 = Slice::Memory(19 << 30);
    assert_eq!(with(&gib19, 0).unwrap(), "1g.20gb");
    assert_eq!(with(&gib19, 2).unwrap(), "2g.20gb");
    assert_eq!(with(&gib19, 4).unwrap(), "4g.40gb");
    let few = Obstacle::FewComputeSlices { has: 1, needed: 2 };
    assert_eq!(obstacle(with(&named("1g.10gb"), 2).unwrap_err()), few);
    let found = obstacle(with(&gib19, 9).unwrap_err());
    let Obstacle::TooMuchMemory { needed_compute, .. } = found else {
        panic!("{found:?}");
    };
    assert_eq!(needed_compute, 9);
}

#[test]
fn leaves_out_excluded_gpus() {
    let m = machine(2);
    let request = named("1g.10gb");
    let rules = ["GPU-0", "GPU-1"].map(|uuid| (uuid.into(), "reserved for team-a".to_owned()));
    let constraints = Constraints {
        excluded: &rules[1..],
        ..Constraints::one(&request)
    };
    assert_eq!(choose(&m, &[], &constraints).unwrap().gpu.index, 0);
    let none = Constraints {
        excluded: &rules,
        ..constraints
    };
    let rule = |gpu| (gpu, GpuObstacle::Excluded("reserved for team-a".to_owned()));
    let all = LeftOut {
        excluded: vec![rule(0), rule(1)],
        unreadable: Vec::new(),
    };
    assert_eq!(rejected(&m, &none), Obstacle::GpusExcluded(all));
}

#[test]
fn prefers_and_evicts_idle_slices() {
    let mut m = machine(1);
    let request = named("3g.40gb");
    take(&mut m, &request).unwrap();
    take(&mut m, &request).unwrap();
    let idle = [slot(0, 9, 0, 4)];
    let at = |slice: &Slice| {
        let constraints = Constraints {
            idle: &idle,
            ..Constraints::one(slice)
        };
        choose(&m, &[], &constraints).map(|d| d.placement.start)
    };
    assert_eq!(at(&request), Ok(0));
    assert_eq!(at(&named("4g.40gb")), Ok(0));
    assert!(at(&named("7g.80gb")).is_err());
}

#[test]
fn tells_moves_that_make_room() {
    let mut m = machine(1);
    let place = |start| Placement { start, size: 1 };
    let there = [0, 4].map(|start| GpuInstance {
        id: start,
        profile_id: 19,
        placement: place(start),
    });
    let fragmented = |m: &Snapshot| fragmentation(&Occupancy::new(&m.gpus[0], &[], &[]));
    assert_eq!(fragmented(&m), Some(0));
    m.gpus[0].instances = there.into();
    // 2g.20gb has a place, and after a move 4g.40gb.
    assert_eq!(fragmented(&m), Some(50));
    let ours = [0, 4].map(|start| slot(0, 19, start, 1));
    let movable = ours.clone().map(|slot| Movable {
        slot,
        containers: 1,
        excluded: Vec::new(),
    });
    let request = Alternative::one(named("3g.40gb"));
    let constraints = Constraints {
        ours: &ours,
        ..Constraints::default()
    };
    let plan = |m: &Snapshot, movable: &[Movable]| {
        let why = diagnose(m, &[], movable, &request, &constraints, MAX_STEPS).unwrap();
        why.rejection.plan().map(|plan| plan.moves.len())
    };
    assert_eq!(plan(&m, &movable), Some(1));
    assert_eq!(plan(&m, &[]), None);
    m.gpus[0].mig = MigMode::Disabled;
    assert_eq!(plan(&m, &movable), None);
}

#[test]
fn gpus_with_the_same_occupants_are_alike() {
    let mut m = machine(2);
    let one = |profile_id, start| GpuInstance {
        id: 0,
        profile_id,
        placement: Placement { start, size: 1 },
    };
    for (other, is_like) in [(one(19, 0), true), (one(19, 1), false), (one(20, 0), false)] {
        m.gpus[0].instances = [one(19, 0)].into();
        m.gpus[1].instances = [other.clone()].into();
        let [a, b] = [0, 1].map(|n| Occupancy::new(&m.gpus[n], &[], &[]));
        assert_eq!(a.is_like(&b, |a, b| a == b), is_like, "{other:?}");
    }
}
