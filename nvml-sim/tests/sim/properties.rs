//! No sequence of calls gives a machine that could not be, or a count that is not so.

use nvml_sim::engine::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Create {
        profile: usize,
        place: Option<usize>,
    },
    Destroy {
        which: usize,
    },
    CreatePart {
        which: usize,
        profile: usize,
        place: Option<usize>,
    },
    DestroyPart {
        which: usize,
        part: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let place = || prop::option::of(0..8_usize);
    prop_oneof![
        4 => (0..12_usize, place()).prop_map(|(profile, place)| Step::Create { profile, place }),
        2 => (0..8_usize).prop_map(|which| Step::Destroy { which }),
        4 => (0..8_usize, 0..4_usize, place())
            .prop_map(|(which, profile, place)| Step::CreatePart { which, profile, place }),
        3 => (0..8_usize, 0..8_usize).prop_map(|(which, part)| Step::DestroyPart { which, part }),
    ]
}

/// Picks by a number that knows nothing of how many there are.
fn pick<T: Copy>(all: &[T], number: usize) -> Option<T> {
    all.get(number.checked_rem(all.len())?).copied()
}

/// One step; whether it was to succeed is judged by trying everything.
fn take(m: &mut Machine, step: &Step) {
    let gis: Vec<u32> = m.gpus[0].gpu_instances.iter().map(|gi| gi.id).collect();
    match *step {
        Step::Create { profile, place } => {
            let model = m.gpus[0].model();
            let profile = &model.profiles[profile % model.profiles.len()];
            let places: Vec<_> = profile.placements().collect();
            let at = place.and_then(|number| pick(&places, number));
            match m.create_gpu_instance(0, profile.id, at, &Unheld) {
                Ok(gi) => assert!(at.is_none_or(|at| at == gi.placement)),
                Err(code) => assert_eq!(code, Code::INSUFFICIENT_RESOURCES),
            }
        }
        Step::Destroy { which } => {
            let Some(gi) = pick(&gis, which) else { return };
            let empty = m.gpus[0]
                .gpu_instance(gi)
                .unwrap()
                .compute_instances
                .is_empty();
            let wanted = if empty { Ok(()) } else { Err(Code::IN_USE) };
            assert_eq!(m.destroy_gpu_instance(0, gi, &Unheld), wanted);
        }
        Step::CreatePart {
            which,
            profile,
            place,
        } => {
            let Some(gi) = pick(&gis, which) else { return };
            let profiles = m.gpus[0].ci_profiles_of(m.gpus[0].gpu_instance(gi).unwrap());
            let profile = &profiles[profile % profiles.len()];
            let at = place.and_then(|number| pick(&profile.placements, number));
            match m.create_compute_instance(0, gi, profile.id, at) {
                Ok(ci) => assert!(at.is_none_or(|at| at == ci.placement)),
                Err(code) => assert_eq!(code, Code::INSUFFICIENT_RESOURCES),
            }
        }
        Step::DestroyPart { which, part } => {
            let Some(gi) = pick(&gis, which) else { return };
            let parts = &m.gpus[0].gpu_instance(gi).unwrap().compute_instances;
            let ids: Vec<u32> = parts.iter().map(|ci| ci.id).collect();
            let Some(ci) = pick(&ids, part) else { return };
            assert_eq!(m.destroy_compute_instance(0, gi, ci, &Unheld), Ok(()));
        }
    }
}

/// A set of slices, one bit each: another way to see overlaps than the engine's.
fn mask(p: Placement) -> u32 {
    (0..p.size).fold(0, |mask, i| mask | 1 << (p.start + i))
}

/// How many instances of a profile can be made, by making them.
fn make_all(m: &Machine, profile: u32) -> u32 {
    let mut m = m.clone();
    (0..)
        .find(|_| m.create_gpu_instance(0, profile, None, &Unheld).is_err())
        .unwrap()
}

fn make_all_parts(m: &Machine, gi: u32, profile: u32) -> u32 {
    let mut m = m.clone();
    (0..)
        .find(|_| m.create_compute_instance(0, gi, profile, None).is_err())
        .unwrap()
}

fn unique<T: Ord>(mut all: Vec<T>) -> bool {
    all.sort();
    all.windows(2).all(|pair| pair[0] != pair[1])
}

fn check(m: &Machine) {
    let gpu = &m.gpus[0];
    let model = gpu.model();
    let covered: u32 = gpu.gpu_instances.iter().map(|gi| gi.placement.size).sum();
    let used = { gpu.gpu_instances.iter() }.fold(0, |used, gi| used | mask(gi.placement));
    assert_eq!(used.count_ones(), covered, "overlap");
    assert!(used < 1 << model.memory_slices, "out of the GPU");
    assert!(unique(gpu.gpu_instances.iter().map(|gi| gi.id).collect()));
    assert!(unique(gpu.mig_devices().iter().map(|d| d.uuid()).collect()));
    assert!(unique(
        gpu.mig_devices().iter().map(|d| d.ci.generation).collect()
    ));
    for profile in &model.profiles {
        let said = gpu.remaining_capacity(profile.id).unwrap();
        assert_eq!(said, make_all(m, profile.id), "{}", profile.name);
    }
    for gi in &gpu.gpu_instances {
        let profile = gpu.profile_of(gi);
        assert!(gi.id < 15 && profile.placements().any(|p| p == gi.placement));
        let parts = &gi.compute_instances;
        assert!(unique(parts.iter().map(|ci| ci.id).collect()) && parts.iter().all(|ci| ci.id < 8));
        let covered: u32 = parts.iter().map(|ci| ci.placement.size).sum();
        let used = parts.iter().fold(0, |used, ci| used | mask(ci.placement));
        assert_eq!(used.count_ones(), covered, "parts overlap");
        assert!(
            used < 1 << profile.compute_slices,
            "out of the GPU instance"
        );
        for profile in gpu.ci_profiles_of(gi) {
            let said = gpu.ci_remaining_capacity(gi, profile.id).unwrap();
            assert_eq!(
                said,
                make_all_parts(m, gi.id, profile.id),
                "{}",
                profile.name
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_calls_leave_valid_machine(
        model in 0..Model::with_mig().len(),
        floor_swept: bool,
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let gpu = NewGpu { model: &Model::all()[model], floor_swept, mode: Mode::On };
        let mut machine = Machine::new("properties", &[gpu]);
        for step in &steps {
            take(&mut machine, step);
            check(&machine);
        }
    }

    #[test]
    fn machine_survives_json(steps in prop::collection::vec(step(), 1..20)) {
        let gpu = NewGpu { model: &Model::all()[2], floor_swept: false, mode: Mode::On };
        let mut machine = Machine::new("json", &[gpu]);
        steps.iter().for_each(|step| take(&mut machine, step));
        let text = serde_json::to_string(&machine).unwrap();
        prop_assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    }
}

#[test]
fn every_profile_has_all_fields() {
    assert_eq!(Model::all().len(), 19);
    let mut profiles = 0;
    assert_eq!(Model::with_mig().len(), 14);
    assert!(Model::all().is_sorted_by_key(|model| !model.has_mig()));
    for model in Model::with_mig() {
        assert_eq!(Model::find(&model.key).unwrap().key, model.key);
        assert_eq!(Model::find(&model.product).unwrap().key, model.key);
        assert!(unique(model.profiles.iter().map(|p| p.id).collect()));
        assert!(unique(model.profiles.iter().map(|p| p.index).collect()));
        for profile in &model.profiles {
            profiles += 1;
            assert!(profile.index < GI_PROFILE_COUNT);
            assert!(profile.placements().all(|p| p.end() <= model.memory_slices));
            let parts = model.ci_profiles(profile);
            assert!(
                unique(parts.iter().map(|p| p.id).collect()),
                "{} {}",
                model.key,
                profile.name
            );
            let full = model.ci_profile(profile, profile.full_ci).unwrap();
            assert_eq!(
                (full.slices, full.name.as_str()),
                (profile.compute_slices, profile.name.trim_end_matches("+me"))
            );
            let gpu = NewGpu {
                model,
                floor_swept: false,
                mode: Mode::On,
            };
            let machine = Machine::new("profiles", &[gpu]);
            let capacity = machine.gpus[0].remaining_capacity(profile.id).unwrap();
            assert_eq!(
                capacity, profile.max_instances,
                "{} {}",
                model.key, profile.name
            );
        }
    }
    assert_eq!(profiles, 100);
}
