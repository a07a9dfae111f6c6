//! A sick GPU gives nothing new until the driver says that it is well.

use super::*;

/// A machine, the options that make its GPU sick, a request, the reason, and the sign to ignore.
type Case = (Options, Options, Asks, (&'static str, &'static str));
type Options = &'static [&'static str];
type Asks = &'static [(&'static str, &'static str)];

const A100: &[&str] = &["--gpu", "A100-80GB"];
const T4: &[&str] = &["--gpu", "T4"];
const H100: &[&str] = &["--gpu", "H100-80GB", "--mig", "off"];
const A_SLICE: &[(&str, &str)] = &[(SLICE, "1g.10gb")];
const A_GPU: &[(&str, &str)] = &[("runmig.dev/gpu", "1")];
const A_SHARE: &[(&str, &str)] = &[("runmig.dev/share", "2Gi")];
const A_SEAT: &[(&str, &str)] = &[(SLICE, "1g.10gb"), ("runmig.dev/share", "2Gi")];

const FABRIC: (&str, &str) = ("its NVLink fabric is not up", "fabric-down");

const CASES: [Case; 8] = testkit::rows! {
    A100, &["--remap-pending"], A_SLICE =>
        ("rows of its memory wait for a reset to be remapped", "row-remap-pending");
    A100, &["--remap-failed"], A_SEAT => ("a row of its memory could not be remapped", "row-remap-failed");
    T4, &["--retirement-pending"], A_SHARE =>
        ("pages of its memory wait to be retired", "page-retirement-pending");
    A100, &["--recovery-action", "2"], A_SLICE => ("the driver asks for a reboot", "recovery-action");
    T4, &["--uncorrectable-errors", "2"], A_GPU => ("uncorrectable memory errors: 2", "uncorrectable-errors");
    H100, &["--fabric", "1"], A_GPU => FABRIC;
    H100, &["--fabric", "2"], A_SHARE => FABRIC;
    H100, &["--fabric", "3", "--fabric-status", "999"], A_GPU => FABRIC;
};

const NONE: &str = "[sharing]\nenforcement = [\"none\"]\n";

/// Failure: a GPU answers the driver well, and fails every CUDA program
#[test]
fn each_sign_is_an_obstacle_until_it_is_gone_or_off() {
    for (gpu, sign, asks, (why, off)) in CASES {
        let setup = Setup::on(Low::Runc, Machine::with(gpu));
        setup.configure(NONE);
        let health = |sign: &[&str]| {
            setup.sim("health", &[&["--gpu", "0"], sign].concat());
        };
        let asked: Vec<String> = { asks.iter() }
            .flat_map(|(key, value)| [format!("--{}", &key[11..]), (*value).to_owned()])
            .collect();
        let mut explain = vec!["explain"];
        // A profile stands without an option.
        explain.extend(
            asked
                .iter()
                .map(String::as_str)
                .filter(|word| *word != "--slice"),
        );
        let is_given = || setup.migctl(&explain).status.success();
        assert!(is_given(), "{explain:?}");
        health(sign);
        has(&setup.migctl(&explain).exits(1).stdout, why);
        setup.refuses(asks, why);
        has(&setup.tells(&["gpus"]), why);
        setup
            .migctl(&["doctor", "--only", "driver"])
            .exits(1)
            .says(why);
        setup.configure(&format!("{NONE}[health]\nignore = [\"{}\"]\n", off));
        assert!(is_given(), "{} is off", off);
        setup.configure(NONE);
        assert!(!is_given());
        health(&[]);
        assert!(is_given(), "{explain:?} after {:?}", sign);
        setup.nothing_is_left();
    }
}

#[test]
fn fabric_that_is_up_or_missing_is_no_sign() {
    for (gpu, state) in [(H100, "0"), (H100, "3"), (T4, "1")] {
        let setup = Setup::on(Low::Runc, Machine::with(gpu));
        setup.sim("health", &["--gpu", "0", "--fabric", state]);
        setup.migctl(&["explain", "--gpu", "1"]).ok();
    }
    // Slices use no NVLink.
    let setup = Setup::on(Low::Runc, Machine::with(&["--gpu", "H100-80GB"]));
    setup.sim("health", &["--gpu", "0", "--fabric", "1"]);
    setup.migctl(&["explain", "1g.10gb"]).ok();
}

/// Failure: the driver is older than a sign, or does not tell it
#[test]
fn unsupported_sign_is_no_sign() {
    let old = Machine::with(&["--gpu", "A100-80GB", "--driver", "550"]);
    let setup = Setup::on(Low::Runc, old);
    setup.sim("health", &["--gpu", "0", "--recovery-action", "1"]);
    setup.migctl(&["explain", "1g.10gb"]).ok();
    let world = World::small();
    health(&world, 0, sick());
    refused(&world, "a", &[(SLICE, world.profile)]);
    use nvml_sim::fault::Outcome;
    for code in [3, 13] {
        world.no_faults();
        world.fault("nvmlDeviceGetFieldValues", 1, None, Outcome::Return(code));
        world.tells(&["explain", world.profile]);
    }
    // It fell off the bus between two calls.
    world.no_faults();
    world.fault("nvmlDeviceGetFieldValues", 1, None, Outcome::Return(15));
    let line = refused(&world, "b", &[(SLICE, world.profile)]);
    has(&line, "sick: it fell off the bus");
}

#[test]
fn asks_one_call_a_gpu_and_only_in_a_create_that_asks() {
    let world = World::of(BIG, 2);
    let asked = |world: &World, id: &str| {
        let calls = world.driver_calls(|| drop(world.create(id)));
        let named = |name: &str| calls.iter().filter(|call| *call == name).count();
        [
            named("nvmlDeviceGetFieldValues"),
            named("nvmlDeviceGetGpuFabricInfoV"),
        ]
    };
    world.bundle_asking("a", world.profile);
    assert_eq!(asked(&world, "a"), [2, 0]);
    world.bundle_saying("plain", &[]);
    assert_eq!(world.driver_calls(|| drop(world.create("plain"))), [""; 0]);
    assert_eq!(world.driver_calls(|| drop(world.delete("plain"))), [""; 0]);
    world.all_go(&["a"]);
}

/// The sick one is the emptiest.
#[test]
fn another_gpu_serves_and_the_living_stay() {
    let world = World::of(BIG, 2);
    world.create("a");
    let of = |id: &str| world.lease_of(id)["gpuIndex"].as_u64().unwrap() as usize;
    let at = of("a");
    health(&world, at, sick());
    for id in ["b", "c"] {
        world.create(id);
        assert_ne!(of(id), at);
    }
    world.has_its_slices("a").unwrap();
    assert!(world.living_init("a").is_some());
    world.all_go(&["a", "b", "c"]);
}

/// Failure: the only GPU recovers while creates wait
#[test]
fn waiter_goes_on_when_its_gpu_is_well() {
    let world = World::small();
    health(&world, 0, sick());
    let line = refused(&world, "a", &[(SLICE, world.profile)]);
    has(
        &line,
        "hint: run migctl drain 0 --wait; nvidia-smi -i 0 --gpu-reset; migctl uncordon 0, or set runmig.dev/wait to wait",
    );
    let waiter = world.waits("w", &[(SLICE, world.profile)]);
    health(&world, 0, Health::default());
    waiter.end().ok();
    assert!(world.living_init("w").is_some());
    world.all_go(&["w"]);
}

const SHARE: (&str, &str) = ("runmig.dev/share", "2Gi");

/// Failure: no GPU can be read, and then it can, while creates of each kind wait
#[test]
fn waiter_goes_on_when_its_gpu_can_be_read() {
    let slice = (SLICE, "2g.20gb");
    reads_again("GPU_IS_LOST", [&[slice], &[slice, SHARE], &[SHARE]]);
    let gpu = ("runmig.dev/gpu", "1");
    reads_again("TIMEOUT", [&[(SLICE, "20Gi,1g.10gb")], &[slice], &[gpu]]);
}

/// The driver answers with a code when it is asked for a GPU, and then well.
fn reads_again(code: &str, requests: [&[(&str, &str)]; 3]) {
    let gpus = ["--gpu", "A100-80GB", "--gpu", "L4"];
    let setup = Setup::on(Low::Runc, Machine::with(&gpus));
    setup.configure("[sharing]\nenforcement = [\"none\"]\n");
    setup.fault("nvmlDeviceGetUUID", code);
    for asks in requests {
        let line = setup.refuses(asks, "cannot read GPU 0: ");
        has(
            &line,
            "run nvidia-smi, and check the kernel log for the GPU's state, or set runmig.dev/wait to wait",
        );
    }
    let waiters = requests.map(|asks| setup.waits(asks));
    setup.machine.sim("fault", &["--clear"]);
    let ids = waiters.map(|(id, waiter)| {
        waiter.end().ok();
        id
    });
    setup.ends(&ids);
}

/// Failure: the driver gives no answer at all for a while, and a create stands in the queue
#[test]
fn waiter_outlives_a_driver_without_an_answer() {
    for (call, code) in [("nvmlInit_v2", 999), ("nvmlDeviceGetCount_v2", 10)] {
        let world = World::small();
        let mut ids = world.full();
        let waiter = world.waits("w", &[(SLICE, world.profile)]);
        world.fault(call, 1, None, Outcome::Return(code));
        // A create that does not stand in the queue fails.
        let line = refused(&world, "x", &[(SLICE, world.profile)]);
        has(&line, &format!("(NVML {code})"));
        // The change of a cordon has it look again.
        let uuid = &world.engine().gpus[0].uuid;
        world.tells(&["cordon", uuid]);
        world.tells(&["uncordon", uuid]);
        until("it looks in vain", || world.log().contains("waits on: "));
        world.no_faults();
        world.delete(&ids[0]);
        waiter.end().ok();
        ids[0] = "w".to_owned();
        world.all_go(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn reset_heals_and_views_name_signs() {
    let world = World::small();
    let both = Health {
        remap_pending: true,
        remap_failed: true,
        ..Health::default()
    };
    health(&world, 0, both);
    let closed = gpu(&world)["closed"].clone();
    assert_eq!(
        closed["reasons"],
        json!(["row-remap-failed", "row-remap-pending"])
    );
    assert_eq!(closed["remedy"], "replace GPU 0");
    let metrics = world.tells(&["metrics"]);
    for reason in ["row-remap-failed", "row-remap-pending"] {
        has(&metrics, &format!("gpu=\"0\",reason=\"{reason}\"}} 1"));
    }
    world.change(|machine, files| machine.reset_gpu(0, files).unwrap());
    assert_eq!(
        gpu(&world)["closed"]["reasons"],
        json!(["row-remap-failed"])
    );
    health(&world, 0, Health::default());
    assert_eq!(gpu(&world)["closed"], Value::Null);
    assert!(!world.tells(&["metrics"]).contains("runmig_gpu_closed{"));
}
