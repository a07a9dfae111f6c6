//! Placement against references that are written as plainly as possible, on random machines of all
//! models that the simulated driver has; and the packing benchmark in short.

#[path = "../../../benches/packing/mod.rs"]
mod packing;
mod reference;

use nvml_sim::engine::Model;
use packing::models::gpu;
use proptest::prelude::*;
use proptest::sample::Index;
use reference::{Place, answers, decide, fits, restarts};
use runmig_lease::model::{GpuInstance, GpuUuid, Placement, Snapshot};
use runmig_lease::placement::{
    Constraints, DefragPlan, GpuReport, MAX_STEPS, Movable, SearchResult, Slot, Verdict, choose,
    explain, fewest_moves,
};
use runmig_lease::request::{Alternative, Slice};

/// GPUs of any models, with what fits on them in any order.
fn machine(models: &[Index], filling: &[(Index, Index, Index)]) -> Snapshot {
    let all = Model::with_mig();
    let gpus = models.iter().zip(0..);
    let mut snapshot = Snapshot {
        gpus: gpus
            .map(|(m, i)| gpu(&all[m.index(all.len())], i))
            .collect(),
        ..Snapshot::default()
    };
    for (gpu, profile, place) in filling {
        let gpu = gpu.index(snapshot.gpus.len());
        let gpu = &mut snapshot.gpus[gpu];
        let profile = &gpu.profiles[profile.index(gpu.profiles.len())];
        let places: Vec<Placement> = profile.placements.clone();
        let at = places[place.index(places.len())];
        let there: Vec<(u32, Placement)> = gpu
            .instances
            .iter()
            .map(|i| (i.profile_id, i.placement))
            .collect();
        if fits(gpu, &there, profile, at) {
            gpu.instances.push(GpuInstance {
                id: 0,
                profile_id: profile.id,
                placement: at,
            });
        }
    }
    snapshot
}

fn reserved(snapshot: &Snapshot, mut which: impl FnMut() -> bool) -> Vec<Slot> {
    let mut all = Vec::new();
    for gpu in &snapshot.gpus {
        for i in gpu.instances.iter().filter(|_| which()) {
            all.push(Slot {
                gpu: gpu.uuid.clone(),
                profile_id: i.profile_id,
                placement: i.placement,
            });
        }
    }
    all
}

fn indices() -> impl Strategy<Value = (Index, Index, Index)> {
    (any::<Index>(), any::<Index>(), any::<Index>())
}

/// Any, or several GPUs of one.
fn models() -> impl Strategy<Value = Vec<Index>> {
    let alike = (any::<Index>(), 3usize..8).prop_map(|(model, count)| vec![model; count]);
    prop_oneof![prop::collection::vec(any::<Index>(), 1..5), alike]
}

/// A profile of one of the GPUs, or an amount of memory.
fn asked(snapshot: &Snapshot, gpu: &Index, profile: &Index, memory: Option<u64>) -> Slice {
    let gpu = &snapshot.gpus[gpu.index(snapshot.gpus.len())];
    match memory {
        Some(gib) => Slice::Memory(gib << 30),
        None => {
            let profile = &gpu.profiles[profile.index(gpu.profiles.len())];
            Slice::Profile(profile.name.parse().unwrap())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn decisions_are_those_of_the_reference(
        models in models(),
        filling in prop::collection::vec(indices(), 0..30),
        idle in prop::collection::vec(any::<bool>(), 30),
        promised in prop::collection::vec(prop::option::weighted(0.2, any::<bool>()), 30),
        beside in prop::option::weighted(0.3, any::<Index>()),
        barred in prop::option::weighted(0.3, any::<Index>()),
        requests in prop::collection::vec(
            (any::<Index>(), any::<Index>(), prop::option::weighted(0.3, 1u64..100)), 1..3),
        min_compute in 0u32..3,
        excluded in prop::option::of(any::<Index>()),
    ) {
        let mut snapshot = machine(&models, &filling);
        let mut idle = idle.into_iter();
        let idle = reserved(&snapshot, || idle.next().unwrap_or(false));
        let is_promised = promised.clone();
        let mut is_promised = is_promised.into_iter();
        let reserved = reserved(&snapshot, || is_promised.next().flatten().is_some());
        // Some of the promised slices are not made yet.
        let mut is_made = promised.iter().copied();
        for gpu in &mut snapshot.gpus {
            gpu.instances.retain(|_| is_made.next().flatten().unwrap_or(true));
        }
        let alternatives: Vec<Slice> = requests.iter()
            .map(|(g, p, memory)| asked(&snapshot, g, p, *memory)).collect();
        let excluded: Vec<(GpuUuid, String)> = excluded.iter()
            .map(|g| (snapshot.gpus[g.index(models.len())].uuid.clone(), "a rule".to_owned()))
            .collect();
        let beside: Vec<GpuUuid> = beside.iter()
            .map(|g| snapshot.gpus[g.index(models.len())].uuid.clone()).collect();
        let barred: Vec<String> = barred.iter().map(|p| {
            let all = &snapshot.gpus[0].profiles;
            all[p.index(all.len())].name.clone()
        }).collect();
        let wanted = Constraints {
            alternatives: &alternatives, min_compute, excluded: &excluded, idle: &idle,
            own_gpus: &beside, denied_profiles: &barred,
            ..Constraints::default()
        };
        let chosen = choose(&snapshot, &reserved, &wanted).ok().map(|d| Place {
            gpu: d.gpu.index, profile: d.profile.name.clone(), at: d.placement,
        });
        prop_assert_eq!(chosen, decide(&snapshot, &reserved, &wanted));
        for slice in &alternatives {
            let explained = explain(&snapshot, &reserved, slice, &wanted);
            let answers = answers(&snapshot, &reserved, &wanted, slice);
            for GpuReport { gpu, verdict, .. } in &explained {
                let said = match verdict {
                    Verdict::Fits(slots) => Ok(slots.iter().map(|slot| (slot.placement, &slot.closes)).collect()),
                    Verdict::Full => Err("full"),
                    Verdict::NoSlot => Err("no slot"),
                    Verdict::Exhausted(_) => Err("exhausted"),
                    Verdict::NoProfile => Err("no profile"),
                    Verdict::Excluded(_) => Err("excluded"),
                    _ => Err("another answer"),
                };
                let expected = match &answers[gpu.index as usize] {
                    Ok(all) => Ok(all.iter().map(|found| (found.place.at, &found.closes)).collect::<Vec<_>>()),
                    Err(why) => Err(*why),
                };
                prop_assert_eq!(said, expected);
            }
            let best = |on: &GpuReport<'_>| matches!(on.verdict, Verdict::Fits(_)).then_some(on.gpu.index);
            let one = Constraints { alternatives: std::slice::from_ref(slice), ..wanted };
            let decided = decide(&snapshot, &reserved, &one).map(|place| place.gpu);
            prop_assert_eq!(best(&explained[0]), decided);
        }
    }
}

/// The smallest profile that has the memory; where a profile lies on several models, what fits a small
/// GPU leaves the large one to those who fit nowhere else.
#[test]
fn prefers_smaller_of_two_models() {
    let of = |name| Model::find(name).unwrap();
    let snapshot = Snapshot {
        gpus: vec![
            gpu(of("A100-80GB"), 0),
            gpu(of("A100-40GB"), 1),
            gpu(of("A30-24GB"), 2),
        ],
        ..Snapshot::default()
    };
    let goes_to = |asked: Slice| {
        let found = choose(&snapshot, &[], &Constraints::one(&asked)).unwrap();
        (found.gpu.index, found.profile.name.clone())
    };
    let named = |name: &str| Slice::Profile(name.parse().unwrap());
    // Less of the larger one would do for it.
    assert_eq!(goes_to(named("1g.10gb")), (1, "1g.10gb".to_owned()));
    assert_eq!(goes_to(Slice::Memory(5 << 30)), (2, "1g.6gb".to_owned()));
    assert_eq!(goes_to(Slice::Memory(9 << 30)), (1, "1g.10gb".to_owned()));
    // And not all of the smaller GPU, which has as much.
    assert_eq!(goes_to(Slice::Memory(39 << 30)), (0, "3g.40gb".to_owned()));
    assert_eq!(goes_to(Slice::Memory(70 << 30)), (0, "7g.80gb".to_owned()));
}

proptest! {
    // The reference tries every set in every order.
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// Not one restart too many, and none that does not help.
    #[test]
    fn finds_fewest_restarts_like_reference(
        model in any::<Index>(),
        filling in prop::collection::vec(indices(), 4..24),
        foreign in prop::collection::vec(prop::bool::weighted(0.2), 24),
        profile in any::<Index>(),
        containers in prop::collection::vec(1usize..3, 6),
        // Excludes one of the two GPUs for the first or for the others, or none.
        rules in prop::collection::vec(prop::option::weighted(0.3, 0usize..2), 7),
        twins in any::<bool>(),
    ) {
        let mut snapshot = machine(&[model, model], &filling);
        if twins {
            snapshot.gpus[1].instances = snapshot.gpus[0].instances.clone();
        }
        let mut foreign = foreign.into_iter();
        let mut ours = reserved(&snapshot, || !foreign.next().unwrap_or(true));
        ours.sort_by_key(|r| (r.placement.start, r.gpu.clone()));
        let ours = &ours[..ours.len().min(6)];
        let excluded = |rule: &Option<usize>| -> Vec<(GpuUuid, String)> {
            rule.iter().map(|g| (snapshot.gpus[*g].uuid.clone(), "a rule".to_owned())).collect()
        };
        let movable: Vec<Movable> = ours.iter().zip(&containers).zip(&rules)
            .map(|((place, containers), rule)| Movable {
                slot: place.clone(), containers: *containers, excluded: excluded(rule),
            }).collect();
        let slice = asked(&snapshot, &model, &profile, None);
        let excluded = excluded(&rules[6]);
        let wanted = Constraints { excluded: &excluded, ..Constraints::one(&slice) };
        let one = Alternative::one(slice.clone());
        let found = fewest_moves(&snapshot, &[], &movable, &one, &wanted, MAX_STEPS);
        let fewest = restarts(&snapshot, &movable, &wanted);
        let all = |plan: &DefragPlan| plan.moves.iter().map(|m| movable[m.which].containers).sum();
        match found {
            SearchResult::Plan(plan) => prop_assert_eq!(Some(all(&plan)), fewest),
            SearchResult::Impossible | SearchResult::Immovable => prop_assert_eq!(None, fewest),
            SearchResult::Beyond(n) => prop_assert!(false, "gave up after {} restarts", n),
        }
    }
}

/// In short, and the same on every machine: the seeds decide.
#[test]
fn beats_first_fit_below_free_repacking() {
    let workloads = packing::Workloads::read();
    let settings = packing::Settings {
        seeds: 1,
        arrivals: 500,
        threads: 1,
    };
    let mut all = Vec::new();
    for fleet in &workloads.fleets {
        let name = fleet.name();
        let results = packing::measure(fleet, &workloads.loads, &settings);
        let of = |policy| {
            let result = results.iter().find(|r| r.policy == policy);
            result.expect("all are measured").whole()
        };
        let (first, ours) = (of(packing::Policy::FirstFit), of(packing::Policy::Ours));
        let bound = of(packing::Policy::Repack);
        assert!(ours.memory > first.memory, "{name}: {ours:?} {first:?}");
        let is_ahead = ours.accepted > first.accepted && ours.would_fit < first.would_fit;
        assert!(is_ahead, "{name}: {ours:?} {first:?}");
        assert!(bound.memory > ours.memory, "{name}: {bound:?} {ours:?}");
        let table = packing::table(&results);
        assert_eq!(table.lines().count(), 2 + packing::ALL.len(), "{table}");
        let by_mix = packing::by_mix(fleet, &results);
        assert_eq!(by_mix.lines().count(), 2 + packing::ALL.len(), "{by_mix}");
        all.push(results);
    }
    assert!(packing::plot::svg(&workloads, &all).ends_with("</svg>\n"));
}

/// A random mix draws from the requests of the fleet's own mixes.
#[test]
fn random_mix_has_several_requests() {
    for fleet in packing::Workloads::read().with_random_mixes(20).fleets {
        assert_eq!(fleet.mixes.len(), 20);
        assert!(fleet.mixes.iter().all(|mix| fleet.kinds(mix).len() > 1));
    }
}
