//! No sequence of calls gives a machine that could not be, or a count that is not so.

use nvml_sim::engine::*;
use proptest::prelude::*;

/// A step: what it does, to which instance, with which profile or part, and where.
type Step = (Act, usize, usize, Option<usize>);

#[derive(Clone, Copy, Debug)]
enum Act {
    Create,
    Destroy,
    CreatePart,
    DestroyPart,
}

fn step() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        4 => Just(Act::Create),
        2 => Just(Act::Destroy),
        4 => Just(Act::CreatePart),
        3 => Just(Act::DestroyPart),
    ];
    (act, 0..8_usize, 0..24_usize, prop::option::of(0..8_usize))
}

/// Picks by a number that knows nothing of how many there are.
fn pick<T: Copy>(all: &[T], number: usize) -> Option<T> {
    all.get(number.checked_rem(all.len())?).copied()
}

/// One step; whether it was to succeed is judged by trying everything.
fn take(m: &mut Machine, (act, which, what, place): Step) {
    let full = Code::INSUFFICIENT_RESOURCES;
    if let Act::Create = act {
        let model = m.gpus[0].model();
        let profile = &model.profiles[what % model.profiles.len()];
        let places: Vec<_> = profile.placements().collect();
        let at = place.and_then(|number| pick(&places, number));
        return match m.create_gpu_instance(0, profile.id, at, &Unheld) {
            Ok(gi) => assert!(at.is_none_or(|at| at == gi.placement)),
            Err(code) => assert_eq!(code, full),
        };
    }
    let gis: Vec<u32> = m.gpus[0].gpu_instances.iter().map(|gi| gi.id).collect();
    let Some(gi) = pick(&gis, which) else { return };
    let it = m.gpus[0].gpu_instance(gi).unwrap();
    let parts: Vec<u32> = it.compute_instances.iter().map(|ci| ci.id).collect();
    match act {
        Act::Create => {}
        Act::Destroy => {
            let wanted = parts.is_empty().then_some(()).ok_or(Code::IN_USE);
            assert_eq!(m.destroy_gpu_instance(0, gi, &Unheld), wanted);
        }
        Act::CreatePart => {
            let profiles = m.gpus[0].ci_profiles_of(it);
            let profile = &profiles[what % profiles.len()];
            let at = place.and_then(|number| pick(&profile.placements, number));
            match m.create_compute_instance(0, gi, profile.id, at) {
                Ok(ci) => assert!(at.is_none_or(|at| at == ci.placement)),
                Err(code) => assert_eq!(code, full),
            }
        }
        Act::DestroyPart => {
            let Some(ci) = pick(&parts, what) else { return };
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
    let mut is_full = |_: &u32| m.create_gpu_instance(0, profile, None, &Unheld).is_err();
    (0..).find(|n| is_full(n)).unwrap()
}

fn make_all_parts(m: &Machine, gi: u32, profile: u32) -> u32 {
    let mut m = m.clone();
    let mut is_full = |_: &u32| m.create_compute_instance(0, gi, profile, None).is_err();
    (0..).find(|n| is_full(n)).unwrap()
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
    let devices = gpu.mig_devices();
    assert!(unique(devices.iter().map(|d| d.uuid()).collect()));
    assert!(unique(devices.iter().map(|d| d.ci.generation).collect()));
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
        assert!(used < 1 << profile.compute_slices, "out of the instance");
        for profile in gpu.ci_profiles_of(gi) {
            let said = gpu.ci_remaining_capacity(gi, profile.id).unwrap();
            let made = make_all_parts(m, gi.id, profile.id);
            assert_eq!(said, made, "{}", profile.name);
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
            take(&mut machine, *step);
            check(&machine);
        }
    }

    #[test]
    fn machine_survives_json(steps in prop::collection::vec(step(), 1..20)) {
        let gpu = NewGpu { model: &Model::all()[2], floor_swept: false, mode: Mode::On };
        let mut machine = Machine::new("json", &[gpu]);
        steps.iter().for_each(|step| take(&mut machine, *step));
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
            let name = format!("{} {}", model.key, profile.name);
            profiles += 1;
            assert!(profile.index < GI_PROFILE_COUNT);
            assert!(profile.placements().all(|p| p.end() <= model.memory_slices));
            let parts = model.ci_profiles(profile);
            assert!(unique(parts.iter().map(|p| p.id).collect()), "{name}");
            let full = model.ci_profile(profile, profile.full_ci).unwrap();
            assert_eq!(full.slices, profile.compute_slices, "{name}");
            assert_eq!(full.name, profile.name.trim_end_matches("+me"));
            let gpu = NewGpu {
                model,
                floor_swept: false,
                mode: Mode::On,
            };
            let machine = Machine::new("profiles", &[gpu]);
            let capacity = machine.gpus[0].remaining_capacity(profile.id).unwrap();
            assert_eq!(capacity, profile.max_instances, "{name}");
        }
    }
    assert_eq!(profiles, 100);
}
