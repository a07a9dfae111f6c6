//! Properties of plans on random worlds, without a driver.

mod machine;
#[allow(unreachable_pub)] // the tests of other packages use it too
#[path = "../../../../../testkit/src/models.rs"]
mod models;
mod reference;
mod world;

use super::{Plan, Step};
use crate::draft::slot_of;
use crate::model::Gpu;
use crate::placement::Slot;
use crate::policy::Limit;
use crate::request::{self, Alternative};
use crate::store::{Instance, Slice};
use machine::machine;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use reference::{Span, can_be_had, fits, is_within_limit, is_within_parts, meant};
use std::collections::BTreeSet;
use world::{World, worlds};

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn steps_on<'p>(plan: &'p Plan, gpu: &'p Gpu) -> impl Iterator<Item = &'p Step> {
    let is_there = |step: &&Step| step.slice().gpu_uuid == gpu.uuid;
    plan.steps.iter().filter(is_there)
}

fn spare_on<'w>(world: &'w World, gpu: &'w Gpu) -> impl Iterator<Item = &'w Instance> {
    let is_there = |l: &&Instance| l.slice().unwrap().gpu_uuid == gpu.uuid;
    world.spare().into_iter().filter(is_there)
}

fn is_reused(plan: &Plan, idle: &Instance) -> bool {
    let mut steps = plan.steps.iter();
    steps.any(|step| matches!(step, Step::Reuse(reused, _) if reused.id == idle.id))
}

fn span(slice: &Slice) -> Span {
    (slice.profile_id, slice.placement)
}

/// Returns the instances that no lease claims.
fn foreign(world: &World, gpu: &Gpu) -> Vec<Span> {
    let taken = world.inventory.taken().into_iter();
    let taken: Vec<Span> = { taken.filter(|slot| slot.gpu == gpu.uuid) }
        .map(|slot| (slot.profile_id, slot.placement))
        .collect();
    let all = gpu.instances.iter().map(|i| (i.profile_id, i.placement));
    all.filter(|span| !taken.contains(span)).collect()
}

type Checked = Result<(), TestCaseError>;

proptest! {
    #![proptest_config(cases(2000))]

    /// All of one plan: the search for it takes most of the time.
    #[test]
    fn plan_keeps_what_it_promises(world in worlds()) {
        let plan = world.plan().ok();
        if let Some(plan) = &plan {
            overlaps_nothing_that_stays(&world, plan)?;
            offers_what_request_and_rules_allow(&world, plan)?;
            evicts_idle_slices_in_way(&world, plan)?;
            never_repeats_failed_tries(&world, plan)?;
            leaves_places_of_queued_requests(&world, plan)?;
        }
        is_the_same_for_equal_inventories(world, plan)?;
    }

    #[test]
    fn finds_place_whenever_one_exists(mut world in worlds()) {
        world.blockers.clear();
        world.alternatives.iter_mut().for_each(|asked| asked.others.clear());
        let first = { world.alternatives.iter() }.find(|asked| can_be_had(&world, &asked.slice));
        let plan = world.plan().ok();
        prop_assert_eq!(plan.is_some(), first.is_some());
        if let (Some(plan), Some(asked)) = (plan, first) {
            let slice = plan.steps[0].slice();
            let profile = meant(&world, world.gpu(&slice.gpu_uuid), &asked.slice);
            prop_assert_eq!(profile.map(|p| p.id), Some(slice.profile_id), "another alternative");
        }
    }
}

/// A GPU after the plan has no overlap and no more than its parts: spare idle slices that are not
/// evicted included.
fn overlaps_nothing_that_stays(world: &World, plan: &Plan) -> Checked {
    for gpu in &world.inventory.snapshot.gpus {
        let goes = |idle: &Instance| plan.evict.contains(idle) || is_reused(plan, idle);
        let idle = spare_on(world, gpu).filter(|idle| !goes(idle));
        let mut there = world.staying(gpu);
        there.extend(idle.map(|idle| span(idle.slice().unwrap())));
        let mut foreign = foreign(world, gpu);
        for step in steps_on(plan, gpu) {
            let new = span(step.slice());
            match step {
                Step::Adopt(..) => {
                    let known = foreign.len();
                    foreign.retain(|other| *other != new);
                    prop_assert_eq!(foreign.len() + 1, known, "adopts {:?}", new);
                    continue;
                }
                Step::Reuse(lease, _) => prop_assert!(world.spare().contains(&&**lease)),
                Step::Create(slice) => prop_assert_eq!(slice.gpu_instance, None),
            }
            let is_free = there.iter().all(|(_, other)| !other.overlaps(new.1));
            prop_assert!(is_free, "{:?}", new);
            there.push(new);
        }
        prop_assert!(is_within_parts(gpu, &there));
    }
    Ok(())
}

/// All steps serve one alternative, each with the profile that it stands for on an admitted GPU.
fn offers_what_request_and_rules_allow(world: &World, plan: &Plan) -> Checked {
    let is_meant = |slice: &Slice, asked: &request::Slice| {
        let gpu = world.gpu(&slice.gpu_uuid);
        meant(world, gpu, asked).is_some_and(|profile| {
            (&slice.profile, slice.profile_id) == (&profile.name, profile.id)
                && (slice.gpu_index, slice.gpu_minor) == (gpu.index, gpu.minor)
                && profile.placements.contains(&slice.placement)
        })
    };
    let serves = |asked: &Alternative| {
        let mut both = plan.steps.iter().zip(asked.all());
        plan.steps.len() == asked.count() as usize
            && both.all(|(step, asked)| is_meant(step.slice(), asked))
    };
    prop_assert!(world.alternatives.iter().any(serves));
    let profile = |slice: &Slice| world.gpu(&slice.gpu_uuid).profile(slice.profile_id);
    let memory = |step: &Step| profile(step.slice()).unwrap().memory_mib;
    let memory: Vec<u64> = plan.steps.iter().map(memory).collect();
    prop_assert!(is_within_limit(world, &memory));
    Ok(())
}

/// An evicted slice is idle, stays out of the plan, and is in the way of a new one: by its place, or by
/// a part that the new one lacks.
fn evicts_idle_slices_in_way(world: &World, plan: &Plan) -> Checked {
    let mut seen = BTreeSet::new();
    for idle in &plan.evict {
        prop_assert!(world.spare().contains(&idle));
        prop_assert!(seen.insert(&idle.id), "evicted twice");
        prop_assert!(!is_reused(plan, idle));
        let slice = idle.slice().unwrap();
        let gpu = world.gpu(&slice.gpu_uuid);
        let is_new = |step: &Step| matches!(step, Step::Create(new) if new.placement.overlaps(slice.placement));
        let spare = spare_on(world, gpu).map(|idle| span(idle.slice().unwrap()));
        let mut all = world.staying(gpu);
        all.extend(spare.chain(steps_on(plan, gpu).map(|step| span(step.slice()))));
        all.sort();
        all.dedup();
        prop_assert!(steps_on(plan, gpu).any(is_new) || !is_within_parts(gpu, &all));
    }
    Ok(())
}

fn never_repeats_failed_tries(world: &World, plan: &Plan) -> Checked {
    let tried = &world.tried;
    for step in &plan.steps {
        let slot = slot_of(step.slice());
        let is_here =
            |refused: &Slot| refused.gpu == slot.gpu && refused.placement.overlaps(slot.placement);
        match step {
            // Another process may have created the instance that the driver refused this create.
            Step::Adopt(..) => {
                prop_assert!(!tried.unfit.contains(&slot) && !tried.unusable.contains(&slot));
            }
            Step::Create(_) => prop_assert!(!tried.refused.iter().any(is_here)),
            Step::Reuse(idle, _) => {
                prop_assert!(!tried.refused.iter().any(is_here));
                prop_assert!(!tried.idle.contains(&idle.id));
            }
        }
    }
    prop_assert!(plan.evict.iter().all(|l| !tried.idle.contains(&l.id)));
    Ok(())
}

/// A queued request finds every place that it could use once all of ours are gone.
fn leaves_places_of_queued_requests(world: &World, plan: &Plan) -> Checked {
    let ours = world.inventory.ours();
    for blocker in &world.blockers {
        let gpu = world.gpu(&blocker.gpu);
        let is_at = |at| move |ours: &Slot| ours.gpu == gpu.uuid && ours.placement == at;
        let is_ours = |at| ours.iter().any(is_at(at));
        let stays = gpu.instances.iter().filter(|i| !is_ours(i.placement));
        let stays: Vec<Span> = stays.map(|i| (i.profile_id, i.placement)).collect();
        let awaited = gpu.profile(blocker.profile_id).unwrap();
        for step in steps_on(plan, gpu) {
            let slice = step.slice();
            if let Step::Adopt(..) = step {
                prop_assert_ne!(slice.profile_id, blocker.profile_id);
                continue;
            }
            let mut places =
                { awaited.placements.iter() }.filter(|at| at.overlaps(slice.placement));
            let lost = places.find(|at| fits(gpu, &stays, awaited, **at));
            prop_assert_eq!(lost, None, "{:?}", slice);
        }
    }
    Ok(())
}

/// The order of the records in the ledger changes nothing.
fn is_the_same_for_equal_inventories(mut world: World, first: Option<Plan>) -> Checked {
    let sorted = |mut plan: Plan| {
        plan.evict.sort_by(|a, b| a.id.cmp(&b.id));
        plan
    };
    world.inventory.leases.reverse();
    prop_assert_eq!(world.plan().ok().map(sorted), first.map(sorted));
    Ok(())
}

/// The properties above say nothing about plans that no world asks for.
#[test]
fn worlds_reach_every_outcome() {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..3000 {
        let world = worlds().new_tree(&mut runner).unwrap().current();
        let Ok(plan) = world.plan() else {
            reached.insert("denied");
            continue;
        };
        reached.extend(plan.steps.iter().map(|step| match step {
            Step::Create(_) => "creates",
            Step::Adopt(..) => "adopts",
            Step::Reuse(_, _) => "reuses",
        }));
        let is_overlapped = |old: &Slice| {
            let mut new = plan.steps.iter().map(Step::slice);
            new.any(|s| s.gpu_uuid == old.gpu_uuid && s.placement.overlaps(old.placement))
        };
        let evicts = plan
            .evict
            .iter()
            .map(|l| match is_overlapped(l.slice().unwrap()) {
                true => "evicts from its place",
                false => "evicts elsewhere",
            });
        reached.extend(evicts);
        let is_several = plan.steps.len() > 1;
        reached.extend(is_several.then_some("several"));
        reached.extend((!world.blockers.is_empty()).then_some("passes the queue"));
        reached.extend((!world.tried.refused.is_empty()).then_some("after a refusal"));
        if reached.len() == 9 {
            return;
        }
    }
    panic!("{reached:?}");
}

#[test]
fn limit_leaves_model_with_less_memory() {
    let mut world = machine(&["H100-80GB", "A100-80GB"], &[]);
    let mut gpus = |request: &str, mib: u64| -> Option<Vec<u32>> {
        world.alternatives = request::alternatives(request).unwrap();
        world.limit = Some(Limit {
            namespace: None,
            pod: None,
            user: None,
            slices: None,
            shares: None,
            gpus: None,
            memory: Some(mib << 20),
        });
        let plan = world.plan().ok()?;
        let gpu = |step: &Step| step.slice().gpu_index;
        Some(plan.steps.iter().map(gpu).collect())
    };
    // 1g.10gb has 9984 MiB on GPU 0 and 9728 MiB on GPU 1.
    assert_eq!(gpus("1g.10gb", 9984), Some(vec![0]));
    assert_eq!(gpus("1g.10gb", 9728), Some(vec![1]));
    assert_eq!(gpus("1g.10gb*2", 9984 + 9728), Some(vec![0, 1]));
    assert_ne!(gpus("1g.10gb*2", 9728 + 9728), Some(vec![0, 1]));
}
