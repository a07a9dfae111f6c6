//! Devices fit the counters if and only if `placement` and the driver can make them.

use crate::scheduler::{Scheduler, counters};
use crate::world::{ALL, Card, IN_PLACE, World, models, steps};
use nvml_sim::engine::Model;
use proptest::prelude::*;
use proptest::sample::Index;
use runmig_dra::resource_slices::{DeviceName, Published};
use runmig_lease::model::Placement;
use runmig_lease::placement::{Constraints, Slot, Verdict, explain};
use runmig_lease::request::Slice;

/// Says whether `placement` finds the place of a device free.
fn is_free(world: &World, reserved: &[Slot], device: &DeviceName) -> bool {
    let slice = Slice::Profile(device.profile().clone());
    // Idle slices go for the slices made so far.
    let is_over = |slot: &Slot, idle: &&Slot| {
        let (one, other) = (slot.placement, idle.placement);
        let is_before = |a: Placement, b: Placement| a.start + a.size <= b.start;
        slot.gpu == idle.gpu && !is_before(one, other) && !is_before(other, one)
    };
    let goes = |idle: &Slot| { reserved.iter() }.any(|slot| slot != idle && is_over(slot, &idle));
    let (evicted, idle): (Vec<Slot>, Vec<Slot>) = world.ledger.idle.iter().cloned().partition(goes);
    let constraints = Constraints {
        idle: &idle,
        evicted: &evicted,
        ..Constraints::one(&slice)
    };
    let (gpu, _) = device.find(&world.snapshot).unwrap();
    let reports = explain(&world.snapshot, reserved, &slice, &constraints);
    let mut reports = reports.into_iter();
    let report = reports.find(|report| report.gpu.uuid == gpu.uuid).unwrap();
    let Verdict::Fits(slots) = report.verdict else {
        return false;
    };
    let mut places = slots.iter().map(|slot| slot.placement);
    places.any(|place| place == device.placement())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn counters_are_the_drivers_limits(
        models in models(),
        steps in steps(IN_PLACE),
        wanted in prop::collection::vec(any::<Index>(), 1..40),
        order in any::<u64>(),
    ) {
        let world = World::filled(&models, &steps);
        let layout = world.lay_out(&Published::default());
        let mut scheduler = Scheduler::new(&layout.slices, &world.ledger.allocated);
        let (mut truth, mut reserved) = (world.truth.clone(), world.reserved());
        let mut made = Vec::new();
        for index in wanted {
            let device = scheduler.devices()[index.index(scheduler.devices().len())].clone();
            let fits = scheduler.fits(&device);
            prop_assert_eq!(fits, world.makes(&mut truth, &device.name), "{}", device.name);
            prop_assert_eq!(fits, is_free(&world, &reserved, &device.name), "{}", device.name);
            if fits {
                scheduler.allocate(&device.name);
                reserved.push(world.slot(&device.name));
                made.push(device.name.clone());
            }
        }
        let by_order = |name: &DeviceName| {
            let bytes = name.to_string();
            bytes.bytes().fold(order, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
        };
        made.sort_by_key(by_order);
        let mut truth = world.truth.clone();
        for name in made {
            prop_assert!(world.makes(&mut truth, &name), "{}", name);
        }
    }

    #[test]
    fn moved_claims_never_overstate_room(
        models in models(),
        steps in steps(ALL),
        wanted in prop::collection::vec(any::<Index>(), 1..40),
    ) {
        let world = World::filled(&models, &steps);
        let layout = world.lay_out(&Published::default());
        let mut scheduler = Scheduler::new(&layout.slices, &world.ledger.allocated);
        let mut truth = world.truth.clone();
        for index in wanted {
            let device = scheduler.devices()[index.index(scheduler.devices().len())].clone();
            if scheduler.fits(&device) {
                prop_assert!(world.makes(&mut truth, &device.name), "{}", device.name);
                scheduler.allocate(&device.name);
            }
        }
    }
}

/// The limits of GPUs that are not on sale, where each limit binds alone: per profile compute slices, engines and
/// instances.
fn limits() -> impl Strategy<Value = Vec<(u32, [u32; 5], u32)>> {
    // Most are so low that each limit is the first to bind somewhere.
    let engine = prop_oneof![4 => Just(0u32), 1 => 1u32..4];
    let compute = prop_oneof![3 => Just(1u32), 1 => 2u32..8];
    let one = (compute, prop::array::uniform5(engine), 1u32..4);
    prop::collection::vec(one, 12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn counters_are_the_limits_of_placement(
        models in models(),
        limits in limits(),
        wanted in prop::collection::vec(any::<Index>(), 1..40),
    ) {
        let mut world = World::new(&models[..1]);
        let profiles = world.snapshot.gpus[0].profiles.iter_mut();
        for (profile, (compute_slices, engines, most)) in profiles.zip(limits) {
            profile.compute_slices = compute_slices;
            profile.max_instances = most;
            let [copy, decoders, encoders, jpegs, ofas] = engines;
            (profile.copy_engines, profile.decoders, profile.encoders) = (copy, decoders, encoders);
            (profile.jpegs, profile.ofas) = (jpegs, ofas);
        }
        let layout = world.lay_out(&Published::default());
        let mut scheduler = Scheduler::new(&layout.slices, &world.ledger.allocated);
        let mut reserved = Vec::new();
        for index in wanted {
            let device = scheduler.devices()[index.index(scheduler.devices().len())].clone();
            let fits = scheduler.fits(&device);
            prop_assert_eq!(fits, is_free(&world, &reserved, &device.name), "{}", device.name);
            if fits {
                scheduler.allocate(&device.name);
                reserved.push(world.slot(&device.name));
            }
        }
    }
}

#[test]
fn memory_counter_never_limits() {
    for model in Model::with_mig() {
        let world = World::new(&[Card(model, false)]);
        let layout = world.lay_out(&Published::default());
        let total = counters(&layout.slices, "gpu-0000-07-00-0")["memory"];
        let gpu = &world.snapshot.gpus[0];
        let sizes = gpu.profiles.iter().map(|p| p.memory_mib << 20);
        let most = sizes.max().unwrap();
        let is_near = (most..=most + most / 20).contains(&total);
        assert!(is_near, "{}: {most} {total}", model.key);
    }
}
