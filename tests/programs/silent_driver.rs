//! A driver that hangs, or whose library ends its caller: every verb that only looks says so, and what it knows.

use testkit::prelude::*;

const LOOKS: [&[&str]; 8] = [
    &["gpus"],
    &["inspect"],
    &["list"],
    &["top", "--once"],
    &["metrics"],
    &["explain", "1g.10gb"],
    &["explain", "--share", "4Gi"],
    &["export"],
];

const MACHINE: &str = "--gpu A100-80GB --gpu L4";

fn setup() -> (Setup, String, String) {
    let setup = Setup::with(MACHINE, "sharing.enforcement = [\"none\"]");
    let slice = setup.gives(&[("runmig.dev/slice", "1g.10gb")]);
    let share = setup.gives(&[("runmig.dev/share", "4Gi")]);
    (setup, slice, share)
}

fn looks(setup: &Setup, words: &str) {
    for verb in LOOKS {
        let said = setup.migctl(&[verb, &["--timeout", "1s"]].concat());
        let is_list = verb == ["list"];
        assert!(is_list || !said.status.success(), "{said:?}");
        said.warns(words);
    }
}

fn knows(setup: &Setup, ids: &[&str]) {
    for verb in [&["list"][..], &["list", "--all"], &["gpus"], &["inspect"]] {
        let said = setup.migctl(&[verb, &["--timeout", "1s"]].concat());
        for id in ids {
            said.says(id);
        }
    }
}

/// Failure: the driver hangs while an operator looks
#[test]
fn names_call_that_hangs() {
    let (setup, slice, share) = setup();
    for (verb, call) in [
        ("list", "nvmlInit_v2"),
        ("list", "nvmlDeviceGetHandleByUUID"),
        ("gpus", "nvmlDeviceGetCount_v2"),
        ("inspect", "nvmlDeviceGetMigMode"),
        ("gpus", "nvmlDeviceGetMemoryInfo_v2"),
        ("gpus", "nvmlDeviceGetComputeRunningProcesses_v3"),
    ] {
        setup.slow(call, "600s");
        let said = setup.migctl(&[verb, "--timeout", "1s"]);
        said.warns(&format!("{call} did not answer within 1s"));
        said.says(&slice).says(&share);
        setup.no_faults();
    }
    setup.slow("nvmlInit_v2", "600s");
    let silent = "nvmlInit_v2 did not answer within 1s";
    looks(&setup, &format!("cannot ask the NVIDIA driver: {silent}"));
    knows(&setup, &[&slice, &share]);
    let said = setup.migctl(&["gpus", "--timeout", "0"]).exits(2);
    said.warns("0 leaves the driver no time; write a time such as 8s");
    for verb in ["cordon", "uncordon", "drain"] {
        let said = setup.migctl(&[verb, "1", "--timeout", "1s"]).exits(1);
        said.warns(silent);
    }
    let doctor = setup.migctl(&["doctor", "--timeout", "1s", "-o", "json"]);
    let found = doctor.json()["items"].as_array().unwrap().clone();
    // It goes on after the library.
    let [library, _] = ["driver.library", "state.folder"]
        .map(|id| found.iter().find(|item| item["id"] == id).expect(id));
    has(&library.to_string(), silent);
    setup.no_faults();
    setup.ends(&[&slice, &share]);
}

/// Failure: the driver's library ends the process that calls it
#[test]
fn outlives_library_that_kills() {
    let (setup, slice, share) = setup();
    for call in ["nvmlInit_v2", "nvmlDeviceGetMigMode"] {
        setup.sim("fault", &["--call", call, "--kill", "before"]);
        let why = format!("{call} ended the process that called it");
        let gpus = setup.migctl(&["gpus"]).exits(1);
        gpus.warns(&why).says(&slice);
        let doctor = setup.migctl(&["doctor", "--only", "driver,state"]).exits(1);
        doctor.says(&why).says("state");
        setup.no_faults();
    }
    setup.ends(&[&slice, &share]);
}

/// Root would load it.
#[test]
fn never_loads_library_of_others() {
    let setup = Setup::with(MACHINE, "");
    let library = setup.machine.library();
    let owner = |uid| std::os::unix::fs::chown(&library, Some(uid), None).unwrap();
    let refused = |words: &str| {
        setup.refuses(&[("runmig.dev/slice", "1g.10gb")], words);
        let doctor = setup.migctl(&["doctor", "--only", "driver"]).exits(1);
        doctor.says(words);
        setup.migctl(&["gpus"]).exits(1).warns(words);
    };
    chmod(&library, 0o666);
    refused("can write to it (mode 0666)");
    chmod(&library, 0o755);
    owner(1234);
    refused("belongs to user 1234, not to root");
    owner(0);
    let aside = library.with_extension("aside");
    fs::rename(&library, &aside).unwrap();
    let fifo = nix::sys::stat::Mode::from_bits_truncate(0o644);
    nix::unistd::mkfifo(&library, fifo).unwrap();
    refused("it is not a file");
    fs::rename(&aside, &library).unwrap();
    let id = setup.gives(&[("runmig.dev/slice", "1g.10gb")]);
    setup.ends(&[&id]);
}

/// Failure: every GPU falls off the bus
#[test]
fn lost_gpus_are_not_none() {
    let (setup, slice, share) = setup();
    for gpu in ["0", "1"] {
        setup.sim("lose", &["--gpu", gpu]);
    }
    let said = setup.migctl(&["gpus"]).exits(1);
    assert_eq!(said.stdout, "");
    said.warns("GPU is lost");
    let said = setup.migctl(&["gpus", "--gpu", "0"]).exits(1);
    said.warns("cannot find GPU 0, and cannot ")
        .warns("GPU is lost");
    let said = setup.migctl(&["cordon", "1"]).exits(1);
    said.warns("cannot find GPU 1, and cannot ");
    setup.migctl(&["list"]).says(&slice).says(&share);
}
