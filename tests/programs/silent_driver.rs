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

fn machine() -> Machine {
    Machine::with(&["--gpu", "A100-80GB", "--gpu", "L4"])
}

fn setup() -> (Setup, String, String) {
    let setup = Setup::on(Low::Runc, machine());
    setup.configure("sharing.enforcement = [\"none\"]");
    let slice = setup.gives(&[("runmig.dev/slice", "1g.10gb")]);
    let share = setup.gives(&[("runmig.dev/share", "4Gi")]);
    (setup, slice, share)
}

fn looks(setup: &Setup, words: &str) {
    for verb in LOOKS {
        let said = setup.migctl(&[verb, &["--timeout", "1s"]].concat());
        let is_list = verb == ["list"];
        assert!(is_list || !said.status.success(), "{said:?}");
        has(&said.stderr, words);
    }
}

fn knows(setup: &Setup, ids: &[&str]) {
    for verb in [&["list"][..], &["list", "--all"], &["gpus"], &["inspect"]] {
        let said = setup.migctl(&[verb, &["--timeout", "1s"]].concat());
        for id in ids {
            has(&said.stdout, id);
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
    ] {
        setup.slow(call, "600s");
        let said = setup.migctl(&[verb, "--timeout", "1s"]);
        has(&said.stderr, &format!("{call} did not answer within 1s"));
        for id in [&slice, &share] {
            has(&said.stdout, id);
        }
        setup.sim("fault", &["--clear"]);
    }
    setup.slow("nvmlInit_v2", "600s");
    looks(
        &setup,
        "cannot ask the NVIDIA driver: nvmlInit_v2 did not answer within 1s",
    );
    knows(&setup, &[&slice, &share]);
    let said = setup.migctl(&["gpus", "--timeout", "0"]).exits(2);
    has(
        &said.stderr,
        "0 leaves the driver no time; write a time such as 8s",
    );
    for verb in ["cordon", "uncordon", "drain"] {
        let said = setup.migctl(&[verb, "1", "--timeout", "1s"]).exits(1);
        has(&said.stderr, "nvmlInit_v2 did not answer within 1s");
    }
    let doctor = setup.migctl(&["doctor", "--timeout", "1s", "-o", "json"]);
    let found = serde_json::from_str::<Value>(&doctor.stdout).unwrap();
    let items = found["items"].as_array().unwrap();
    let library = items.iter().find(|item| item["id"] == "driver.library");
    has(
        &library.unwrap().to_string(),
        "nvmlInit_v2 did not answer within 1s",
    );
    assert!(
        items.iter().any(|item| item["id"] == "state.folder"),
        "it goes on"
    );
    setup.sim("fault", &["--clear"]);
    setup.ends(&[&slice, &share]);
}

/// Failure: the driver's library ends the process that calls it
#[test]
fn outlives_library_that_kills() {
    let (setup, slice, share) = setup();
    for call in ["nvmlInit_v2", "nvmlDeviceGetMigMode"] {
        setup.sim("fault", &["--call", call, "--kill", "before"]);
        let gpus = setup.migctl(&["gpus"]).exits(1);
        has(
            &gpus.stderr,
            &format!("{call} ended the process that called it"),
        );
        has(&gpus.stdout, &slice);
        let doctor = setup.migctl(&["doctor", "--only", "driver,state"]).exits(1);
        has(
            &doctor.stdout,
            &format!("{call} ended the process that called it"),
        );
        has(&doctor.stdout, "state");
        setup.sim("fault", &["--clear"]);
    }
    setup.ends(&[&slice, &share]);
}

/// Root would load it.
#[test]
fn never_loads_library_of_others() {
    let setup = Setup::on(Low::Runc, machine());
    let library = setup.machine.library();
    let mode = |mode| fs::set_permissions(&library, fs::Permissions::from_mode(mode)).unwrap();
    let owner = |uid| std::os::unix::fs::chown(&library, Some(uid), None).unwrap();
    let refused = |words: &str| {
        setup.refuses(&[("runmig.dev/slice", "1g.10gb")], words);
        let doctor = setup.migctl(&["doctor", "--only", "driver"]).exits(1);
        has(&doctor.stdout, words);
        has(&setup.migctl(&["gpus"]).exits(1).stderr, words);
    };
    mode(0o666);
    refused("can write to it (mode 0666)");
    mode(0o755);
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
    has(&said.stderr, "GPU is lost");
    let said = setup.migctl(&["cordon", "1"]).exits(1);
    has(&said.stderr, "cannot find GPU 1, and cannot ");
    let listed = setup.migctl(&["list"]).stdout;
    assert!(
        listed.contains(&slice) && listed.contains(&share),
        "{listed}"
    );
}
