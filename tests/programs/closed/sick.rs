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

/// Failure: a GPU answers the driver well, and fails every CUDA program
#[test]
fn each_sign_is_an_obstacle_until_it_is_gone_or_off() {
    for (gpu, sign, asks, (why, off)) in CASES {
        let setup = Setup::on(Low::Runc, Machine::with(gpu));
        setup.configure(NONE);
        let health = |sign: &[&str]| {
            setup.sim("health", &[&["--gpu", "0"], sign].concat());
        };
        // A profile stands without an option.
        let option = |(key, value): &(&str, &str)| match &key[11..] {
            "slice" => (*value).to_owned(),
            option => format!("--{option}={value}"),
        };
        let asked: Vec<String> = asks.iter().map(option).collect();
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        let explain = [&["explain"], &asked[..]].concat();
        let is_given = || setup.migctl(&explain).status.success();
        assert!(is_given(), "{explain:?}");
        health(sign);
        setup.refuses(asks, why);
        setup.migctl(&["gpus"]).ok().says(why);
        for verb in [&explain[..], &["doctor", "--only", "driver"]] {
            setup.migctl(verb).exits(1).says(why);
        }
        setup.configure(&format!("{NONE}[health]\nignore = [\"{off}\"]\n"));
        assert!(is_given(), "{off} is off");
        setup.configure(NONE);
        assert!(!is_given());
        health(&[]);
        assert!(is_given(), "{explain:?} after {sign:?}");
        setup.nothing_is_left();
    }
}

#[test]
fn fabric_that_is_up_or_missing_is_no_sign() {
    // Slices use no NVLink.
    let mig: Options = &["--gpu", "H100-80GB"];
    for (gpu, state, asked) in [
        (H100, "0", "--gpu=1"),
        (H100, "3", "--gpu=1"),
        (T4, "1", "--gpu=1"),
        (mig, "1", "1g.10gb"),
    ] {
        let setup = Setup::on(Low::Runc, Machine::with(gpu));
        setup.sim("health", &["--gpu", "0", "--fabric", state]);
        setup.migctl(&["explain", asked]).ok();
    }
}

/// Failure: the driver is older than a sign, or does not tell it
#[test]
fn unsupported_sign_is_no_sign() {
    let setup = Setup::with("--gpu A100-80GB --driver 550", "");
    setup.sim("health", &["--gpu", "0", "--recovery-action", "1"]);
    setup.migctl(&["explain", "1g.10gb"]).ok();
    let world = World::small();
    health(&world, 0, sick());
    world.refuses("a", "sick");
    for code in [3, 13] {
        world.no_faults();
        world.fault("nvmlDeviceGetFieldValues", 1, None, Outcome::Return(code));
        world.tells(&["explain", world.profile]);
    }
    // It fell off the bus between two calls.
    world.no_faults();
    world.fault("nvmlDeviceGetFieldValues", 1, None, Outcome::Return(15));
    world.refuses("b", "sick: it fell off the bus");
}

#[test]
fn asks_one_call_a_gpu_and_only_in_a_create_that_asks() {
    let world = World::of(BIG, 2);
    let asked = |world: &World, id: &str| {
        let calls = world.driver_calls(|| drop(world.create(id)));
        let named = |name: &str| calls.iter().filter(|call| *call == name).count();
        ["nvmlDeviceGetFieldValues", "nvmlDeviceGetGpuFabricInfoV"].map(named)
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
    let hint = "hint: run migctl drain 0 --wait; nvidia-smi -i 0 --gpu-reset; migctl uncordon 0, or set runmig.dev/wait to wait";
    world.refuses("a", hint);
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
    let setup = Setup::with("--gpu A100-80GB --gpu L4", NONE);
    setup.fault("nvmlDeviceGetUUID", code);
    for asks in requests {
        let line = setup.refuses(asks, "cannot read GPU 0: ");
        let hint = "run nvidia-smi, and check the kernel log for the GPU's state, or set runmig.dev/wait to wait";
        has(&line, hint);
    }
    let waiters = requests.map(|asks| setup.waits(asks));
    setup.no_faults();
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
        world.refuses("x", &format!("(NVML {code})"));
        // The change of a cordon has it look again.
        let uuid = &world.engine().gpus[0].uuid;
        world.tells(&["cordon", uuid]);
        world.tells(&["uncordon", uuid]);
        until("it looks in vain", || world.log().contains("waits on: "));
        world.no_faults();
        world.delete(&ids[0]);
        waiter.end().ok();
        ids[0] = "w".to_owned();
        world.all_go(&ids);
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
    let reasons = ["row-remap-failed", "row-remap-pending"];
    assert_eq!(closed["reasons"], json!(reasons));
    assert_eq!(closed["remedy"], "replace GPU 0");
    let metrics = world.tells(&["metrics"]);
    for reason in reasons {
        has(&metrics, &format!("gpu=\"0\",reason=\"{reason}\"}} 1"));
    }
    world.change(|machine, files| machine.reset_gpu(0, files).unwrap());
    let left = gpu(&world)["closed"]["reasons"].clone();
    assert_eq!(left, json!(["row-remap-failed"]));
    health(&world, 0, Health::default());
    assert_eq!(gpu(&world)["closed"], Value::Null);
    assert!(!world.tells(&["metrics"]).contains("runmig_gpu_closed{"));
}
