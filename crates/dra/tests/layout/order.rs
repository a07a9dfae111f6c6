//! The first device of a profile that fits the counters is `placement`'s choice.

use crate::scheduler::Scheduler;
use crate::world::{ALL, IN_PLACE, World, models, steps};
use k8s_openapi::api::resource::v1::ResourceSlice;
use proptest::prelude::*;
use runmig_dra::resource_slices::{DeviceName, Published, settle};
use runmig_lease::placement::{Constraints, Slot, choose};
use runmig_lease::request::Slice;
use std::collections::HashSet;

/// The names of all profiles of a machine.
fn profiles(world: &World) -> Vec<String> {
    let all = world.snapshot.gpus.iter().flat_map(|gpu| &gpu.profiles);
    let mut names: Vec<String> = all.map(|p| p.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// `placement`'s choice for a profile.
fn choice(world: &World, profile: &str) -> Option<DeviceName> {
    let slice = Slice::Profile(profile.parse().unwrap());
    let constraints = Constraints {
        idle: &world.ledger.idle,
        excluded: &world.excluded,
        ..Constraints::one(&slice)
    };
    let decision = choose(&world.snapshot, &world.reserved(), &constraints).ok()?;
    let address = decision.gpu.pci_bus_id.parse().unwrap();
    let profile = profile.parse().unwrap();
    Some(DeviceName::new(address, profile, decision.placement).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn first_fit_is_the_choice(
        models in models(),
        steps in steps(IN_PLACE),
        excluded in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut world = World::filled(&models, &steps);
        if let Some(index) = excluded {
            let gpu = world.snapshot.gpus[index.index(models.len())].uuid.clone();
            world.excluded.push((gpu, "excluded by policy.exclude_gpus".to_owned()));
        }
        // A list that stood before is written only if the scheduler would choose otherwise. What it keeps is right.
        let stood = World::new(&models).lay_out(&Published::default()).published;
        for before in [Published::default(), stood] {
            let layout = world.lay_out(&before);
            let scheduler = Scheduler::new(&layout.slices, &world.ledger.allocated);
            for profile in profiles(&world) {
                let first = scheduler.first(&profile).map(|device| device.name.clone());
                prop_assert_eq!(first, choice(&world, &profile), "{}", profile);
            }
        }
    }

    /// A burst of claims for one profile sees one list.
    #[test]
    fn burst_takes_the_choices(
        models in models(),
        steps in steps(IN_PLACE),
        profile in any::<prop::sample::Index>(),
    ) {
        let mut world = World::filled(&models, &steps);
        // An idle slice that goes for one claim is gone for the next; that, only a look at the driver shows.
        let idle = std::mem::take(&mut world.ledger.idle);
        let is_idle = |gpu: &runmig_lease::model::Gpu, at| {
            idle.iter().any(|s: &Slot| s.gpu == gpu.uuid && s.placement == at)
        };
        for gpu in &mut world.snapshot.gpus {
            let mut instances = std::mem::take(&mut gpu.instances);
            instances.retain(|i| !is_idle(gpu, i.placement));
            gpu.instances = instances;
        }
        let names = profiles(&world);
        let profile = &names[profile.index(names.len())];
        let layout = world.lay_out(&Published::default());
        let mut scheduler = Scheduler::new(&layout.slices, &world.ledger.allocated);
        loop {
            let first = scheduler.first(profile).map(|device| device.name.clone());
            prop_assert_eq!(&first, &choice(&world, profile), "{}", profile);
            let Some(first) = first else { break };
            scheduler.allocate(&first);
            world.promise(&first);
        }
    }

    #[test]
    fn lists_every_device_once(models in models(), steps in steps(ALL)) {
        let world = World::filled(&models, &steps);
        let layout = world.lay_out(&Published::default());
        let scheduler = Scheduler::new(&layout.slices, &world.ledger.allocated);
        let mut names: Vec<String> = scheduler.devices().iter().map(|d| d.name.to_string()).collect();
        let places = world.snapshot.gpus.iter().flat_map(|gpu| &gpu.profiles).flat_map(|p| &p.placements);
        prop_assert_eq!(names.len(), places.count());
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), scheduler.devices().len());
    }
}

fn list(slices: &[ResourceSlice], profile: &str) -> Vec<DeviceName> {
    let scheduler = Scheduler::new(slices, &HashSet::new());
    let names = scheduler.devices().iter().map(|device| device.name.clone());
    names.filter(|name| *profile == *name.profile()).collect()
}

#[test]
fn allocation_in_order_keeps_list() {
    let mut world = World::of("h100-80gb", 2);
    let before = world.lay_out(&Published::default());
    let first = list(&before.slices, "1g.10gb")[0].clone();
    world.promise(&first);
    let after = world.lay_out(&before.published);
    let lists = [&after, &before].map(|layout| list(&layout.slices, "1g.10gb"));
    assert_eq!(lists[0], lists[1]);
}

#[test]
fn settles_on_new_order_alone() {
    let layout = World::of("h100-80gb", 1).lay_out(&Published::default());
    let names = list(&layout.slices, "1g.10gb");
    let of =
        |which: &[usize]| -> Vec<DeviceName> { which.iter().map(|i| names[*i].clone()).collect() };
    let all = of(&[6, 5, 4, 3, 2, 1, 0]);
    for (before, free, settled) in testkit::rows! {
        &names[..], of(&[1, 3, 6]) => names.clone();
        &names[..], of(&[3, 1, 6]) => of(&[3, 1, 6, 5, 4, 2, 0]);
        &names[1..], of(&[1, 3, 6]) => of(&[1, 3, 6, 5, 4, 2, 0]);
    } {
        assert_eq!(settle(before, &free, all.clone()), settled);
    }
}
