//! The plan of one GPU, carried out by the simulated driver, and against a search of all plans.

use testkit::filling::{fill, part};
use testkit::models;
use testkit::prelude::*;

use nvml_sim::engine::{self, Machine, Model, NewGpu, Unheld};
use runmig_lease::model::Placement;
use runmig_lease::placement::{LayoutObstacle, LayoutPlan, Standing, WantedParts, plan_layout};

fn empty(model: &'static Model) -> Machine {
    let gpu = NewGpu {
        model,
        floor_swept: false,
        mode: Mode::On,
    };
    Machine::new("plan", &[gpu])
}

fn standing(machine: &Machine, mut is_held: impl FnMut() -> bool) -> Vec<Standing> {
    let gpu = &machine.gpus[0];
    let one = |gi: &engine::GpuInstance| {
        let slices =
            |ci: &engine::ComputeInstance| gpu.ci_profile_of(gi, ci.profile_id).unwrap().slices;
        Standing {
            profile_id: gi.profile_id,
            placement: Placement {
                start: gi.placement.start,
                size: gi.placement.size,
            },
            parts: gi.compute_instances.iter().map(slices).collect(),
            is_held: is_held(),
        }
    };
    gpu.gpu_instances.iter().map(one).collect()
}

fn content(standing: &[Standing]) -> WantedParts {
    let mut parts = WantedParts::new();
    for one in standing.iter().filter(|one| !one.parts.is_empty()) {
        parts.entry(one.profile_id).or_default().extend(&one.parts);
    }
    parts.values_mut().for_each(|parts| parts.sort_unstable());
    parts
}

/// Carries out a plan in its order, and returns the content then.
fn carry_out(machine: &Machine, plan: &LayoutPlan, about: &str) -> WantedParts {
    let mut machine = machine.clone();
    let model = machine.gpus[0].model();
    let before = machine.gpus[0].gpu_instances.clone();
    for n in &plan.destroy {
        let gone = machine.destroy_whole(0, before[*n].id, &Unheld);
        gone.unwrap_or_else(|e| panic!("{e}: {about}"));
    }
    for new in &plan.create {
        let at = engine::Placement {
            start: new.placement.start,
            size: new.placement.size,
        };
        let made = machine.create_gpu_instance(0, new.profile_id, Some(at), &Unheld);
        let made = made.unwrap_or_else(|e| panic!("{e}: {about}"));
        let profile = model.profile(new.profile_id).unwrap();
        for slices in &new.parts {
            let part = part(model, profile, *slices);
            let made = machine.create_compute_instance(0, made.id, part, None);
            made.unwrap_or_else(|e| panic!("{e}: {about}"));
        }
    }
    for n in &plan.keep {
        let one = &before[*n];
        let is_same = |gi: &engine::GpuInstance| (gi.id, gi.placement) == (one.id, one.placement);
        assert!(machine.gpus[0].gpu_instances.iter().any(is_same), "{about}");
    }
    content(&standing(&machine, || false))
}

#[test]
fn driver_carries_out_each_plan() {
    let (mut plans, mut held) = (0, 0);
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let all = Model::with_mig();
        let model = &all[random.below(all.len() as u64) as usize];
        let (mut now, mut then) = (empty(model), empty(model));
        fill(&mut now, 0, &mut random, false);
        fill(&mut then, 0, &mut random, false);
        let often = 1 + random.below(6);
        let there = standing(&now, || random.one_in(often));
        let wanted = content(&standing(&then, || false));
        let about = format!("seed {seed}: {there:?}\n{wanted:?}");
        match plan_layout(&models::gpu(model, 0), &there, &wanted) {
            Ok(plan) => {
                let is_spared = plan.destroy.iter().all(|n| !there[*n].is_held);
                assert!(is_spared, "{about}\n{plan:?}");
                let about = format!("{about}\n{plan:?}");
                assert_eq!(carry_out(&now, &plan, &about), wanted, "{about}");
                plans += 1;
            }
            Err(LayoutObstacle::Held(plan)) => {
                assert!(plan.destroy.iter().any(|n| there[*n].is_held), "{about}");
                // It is what would be done once nothing holds them.
                assert_eq!(carry_out(&now, &plan, &about), wanted, "{about}");
                held += 1;
            }
            // Parts in several instances may need more of these than stood there.
            Err(e) => assert_eq!(e, LayoutObstacle::NoFit, "{about}"),
        }
    }
    assert!(plans > 100 && held > 50, "{plans} plans, {held} held");
}

/// Returns the fewest destroys that lead to the wanted instances, by a look at every set and every place.
fn fewest_destroys(
    machine: &Machine,
    there: &[Standing],
    wanted: &BTreeMap<u32, u32>,
) -> Option<usize> {
    let mut fewest = None;
    for set in 0..1u32 << there.len() {
        let goes = |n: usize| set >> n & 1 == 1;
        if (0..there.len()).any(|n| goes(n) && there[n].is_held) {
            continue;
        }
        let count = set.count_ones() as usize;
        if fewest.is_some_and(|least| least <= count) {
            continue;
        }
        let mut rest = machine.clone();
        let mut left = wanted.clone();
        let mut is_right = true;
        for (n, one) in machine.gpus[0].gpu_instances.iter().enumerate() {
            if goes(n) {
                rest.gpus[0].gpu_instances.retain(|gi| gi.id != one.id);
                continue;
            }
            match left.get_mut(&one.profile_id) {
                Some(count) if *count > 0 => *count -= 1,
                _ => is_right = false,
            }
        }
        if is_right && has_places(&rest, &left) {
            fewest = Some(count);
        }
    }
    fewest
}

fn has_places(machine: &Machine, left: &BTreeMap<u32, u32>) -> bool {
    let Some((&id, _)) = left.iter().find(|(_, count)| **count > 0) else {
        return true;
    };
    let mut less = left.clone();
    *less.get_mut(&id).unwrap() -= 1;
    let profile = machine.gpus[0].model().profile(id).unwrap();
    profile.placements().any(|at| {
        let mut with = machine.clone();
        with.create_gpu_instance(0, id, Some(at), &Unheld).is_ok() && has_places(&with, &less)
    })
}

#[test]
fn no_plan_destroys_fewer() {
    let (mut some, mut none) = (0, 0);
    for seed in 0..600 {
        let mut random = Random::new(1000 + seed);
        let key = random.of(&["a30-24gb", "a30-24gb", "a100-80gb", "h100-80gb"]);
        let model = Model::find(key).unwrap();
        let (mut now, mut then) = (empty(model), empty(model));
        fill(&mut now, 0, &mut random, true);
        fill(&mut then, 0, &mut random, true);
        let often = 2 + random.below(5);
        let there = standing(&now, || random.one_in(often));
        let wanted = content(&standing(&then, || false));
        let counts = wanted.iter().map(|(id, parts)| (*id, parts.len() as u32));
        let fewest = fewest_destroys(&now, &there, &counts.collect());
        let plan = plan_layout(&models::gpu(model, 0), &there, &wanted);
        let about = format!("seed {seed}: {there:?}\n{wanted:?}\n{plan:?}");
        let destroys = plan.as_ref().ok().map(|plan| plan.destroy.len());
        assert_eq!(destroys, fewest, "{about}");
        match plan {
            Ok(_) => some += 1,
            Err(e) => {
                assert!(matches!(e, LayoutObstacle::Held(_)), "{about}");
                none += 1;
            }
        }
    }
    assert!(some > 50 && none > 20, "{some} plans, {none} without");
}

#[test]
fn keeps_wanted_instances_in_place() {
    let model = Model::find("a100-80gb").unwrap();
    let gpu = models::gpu(model, 0);
    let id = |name: &str| gpu.profiles.iter().find(|p| p.name == name).unwrap().id;
    let mut machine = empty(model);
    for _ in 0..7 {
        let gi = machine.create_gpu_instance(0, id("1g.10gb"), None, &Unheld);
        let gi = gi.unwrap().id;
        machine.create_compute_instance(0, gi, 0, None).unwrap();
    }
    let there = standing(&machine, || false);
    let wanted = WantedParts::from([(id("1g.10gb"), vec![1; 5]), (id("2g.20gb"), vec![2])]);
    let plan = plan_layout(&gpu, &there, &wanted).unwrap();
    let lengths = [plan.keep.len(), plan.destroy.len(), plan.create.len()];
    assert_eq!(lengths, [5, 2, 1]);
    // A held instance in the only place of the largest is the obstacle.
    let mut there = there;
    there.truncate(1);
    there[0].is_held = true;
    let wanted = WantedParts::from([(id("7g.80gb"), vec![7])]);
    let Err(LayoutObstacle::Held(plan)) = plan_layout(&gpu, &there, &wanted) else {
        panic!("the held instance stays")
    };
    assert_eq!((plan.destroy, plan.create.len()), (vec![0], 1));
    let wanted = WantedParts::from([(id("3g.40gb"), vec![3; 3])]);
    let plan = plan_layout(&gpu, &there, &wanted);
    assert_eq!(plan, Err(LayoutObstacle::NoFit));
    // Three parts go into one instance, and a part of four goes nowhere.
    let wanted = WantedParts::from([(id("3g.40gb"), vec![1; 4])]);
    let plan = plan_layout(&gpu, &[], &wanted).unwrap();
    let parts: Vec<&[u32]> = plan.create.iter().map(|new| &new.parts[..]).collect();
    assert_eq!(parts, [&[1, 1, 1][..], &[1]]);
}

#[test]
fn mixed_parts_share_an_instance() {
    let model = Model::find("a100-80gb").unwrap();
    let gpu = models::gpu(model, 0);
    let whole = gpu.profiles.iter().find(|p| p.name == "7g.80gb").unwrap();
    let wanted = WantedParts::from([(whole.id, vec![2, 2, 3])]);
    let plan = plan_layout(&gpu, &[], &wanted).unwrap();
    assert_eq!(plan.create.len(), 1, "{plan:?}");
    assert_eq!(carry_out(&empty(model), &plan, "mixed parts"), wanted);
}
