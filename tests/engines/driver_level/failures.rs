//! A limit that cannot be set, or does not hold, fails the create.

use super::*;
use std::io::{Seek, SeekFrom};

const SET: &str = "nvmlDeviceSetMemoryLimits_v1";
const GET: &str = "nvmlDeviceGetMemoryLimits_v1";

/// Calls the hook with this on standard input.
fn hook(setup: &Setup, arguments: &[&str], state: &[u8]) -> Said {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(state).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut command = setup.plain(&setup.program("runmig-hook"));
    going(command.args(arguments).stdin(file)).end()
}

/// Returns the words of a create that the hook fails. Nothing is left of it.
#[track_caller]
fn refused(setup: &Setup) -> String {
    let bundle = asking(setup, "2Gi");
    let (before, id) = (bundle.bytes(), unique());
    let out = setup.try_create(&bundle, &id);
    assert!(!out.status.success());
    assert_eq!(bundle.bytes(), before);
    setup.sim("fault", &["--clear"]);
    setup.nothing_is_left();
    assert_eq!(limits(setup), []);
    // Low-level runtimes write the hook's words as JSON.
    out.stderr.replace('\\', "")
}

#[track_caller]
fn says(setup: &Setup, words: &[&str]) {
    let line = refused(setup);
    words.iter().for_each(|word| has(&line, word));
}

const HINT: &str =
    "hint: set sharing.enforcement = [\"mps\"], so that an MPS daemon holds the limit";

fn fails_create_without_dmem_files(low: Low) {
    let setup = on(low, Keeper::Dmem);
    fs::write(setup.machine.dir().join("dmem/enabled"), "").unwrap();
    says(
        &setup,
        &[
            "cannot limit the GPU memory of container ",
            ": cgroup /sys/fs/cgroup/runmig-e2e-",
            " has no dmem files, because a cgroup above does not hand dmem down: cannot set the memory limit of cgroup",
            " on GPU 0 (GPU-",
            "not found (NVML 6); hint: set sharing.enforcement = [\"mps\"], so that an MPS daemon holds the limit",
        ],
    );
}

testkit::tests! {
    /// Failure: the container's cgroup has no `dmem` files, or is not its own
    runc_fails_create_without_dmem_files: fails_create_without_dmem_files(Low::Runc);
    /// crun discards the words of a hook, so they come by the record.
    crun_fails_create_without_dmem_files: fails_create_without_dmem_files(Low::NewCrun);
}

/// A low-level runtime that does not run the hook leaves no container without its limit.
/// Failure: a low-level runtime that runs no createRuntime hooks
#[test]
fn fails_create_without_hook() {
    let setup = on(Low::Runc, Keeper::Misc);
    let hook = setup.program("runmig-hook");
    let real = hook.with_file_name("hook");
    fs::rename(&hook, &real).unwrap();
    let body = format!("[ \"$1\" = --limit ] || exec {} \"$@\"", real.display());
    testkit::runtimes::script(&hook, &body);
    says(&setup, &["the low-level runtime did not run the hook"]);
    let (bundle, id) = (asking(&setup, "2Gi"), unique());
    let out = setup.runmig(&["run", "-b", bundle.as_str(), &id]);
    out.exits(137).warns("did not run the hook");
    setup.nothing_is_left();
}

/// Failure: the driver has another limit than the hook set, or none
#[test]
fn fails_create_if_driver_refuses() {
    let setup = on(Low::Runc, Keeper::Misc);
    for (code, words) in [
        ("3", "not supported (NVML 3)"),
        ("4", "insufficient permissions (NVML 4); hint: run as root"),
        ("6", "has no dmem files"),
        ("13", "function not found (NVML 13)"),
        ("999", "unknown error (NVML 999)"),
    ] {
        setup.fault(SET, code);
        says(&setup, &["set the memory limit of cgroup", words]);
    }
}

#[test]
fn fails_create_if_limit_is_missing() {
    for (keeper, words) in testkit::rows! {
        // The driver answers so where no limit is set.
        Keeper::Misc => "read the memory limit of cgroup";
        Keeper::Dmem => "the driver has soft 0 and hard 18446744073709551615";
    } {
        let setup = on(Low::Runc, keeper);
        // It succeeds and does nothing.
        setup.fault(SET, "0");
        says(&setup, &[words, HINT]);
    }
}

/// The limit is there before the kill or is not; in both cases the container is not made.
/// Failure: a kill of that hook
#[test]
fn fails_create_if_hook_is_killed() {
    let setup = on(Low::Runc, Keeper::Misc);
    for moment in ["before", "during", "after"] {
        setup.sim("fault", &["--call", SET, "--kill", moment]);
        says(&setup, &["error running hook", "signal: killed"]);
    }
}

/// The look for the level makes the first call, and the hook the second.
#[test]
fn fails_create_if_limit_is_unreadable() {
    let setup = on(Low::Runc, Keeper::Misc);
    let fault = ["--call", GET, "--nth", "2", "--returns", "999"];
    setup.sim("fault", &fault);
    says(&setup, &["read the memory limit", "(NVML 999)"]);
}

#[test]
fn hook_refuses_foreign_states() {
    let setup = on(Low::Runc, Keeper::Misc);
    let (id, bundle) = (unique(), asking(&setup, "2Gi"));
    setup.create(&bundle, &id);
    let lease = setup.the_lease()["id"].as_str().unwrap().to_owned();
    let limited = limits(&setup);
    let dir = bundle.as_str();
    let state = |id: &str, pid: &str| format!("{{\"id\": \"{id}\", \"bundle\": \"{dir}\"{pid}}}");
    let ours = format!(", \"pid\": {}", std::process::id());
    let named = ["--limit", "--lease", &lease];
    for (arguments, state, words) in testkit::rows! {
        // This process is in the low-level runtime's cgroup.
        &named[..], state(&id, &ours) => "find the cgroup of process";
        &named, state(&id, ", \"pid\": 0") => "has no process";
        &named, state(&id, "") => "has no process";
        &named, state(&id, ", \"pid\": 4194304") => "the process is gone";
        &named, state("other", &ours) => "is not this container's";
        &["--limit"], state(&id, &ours) => "--limit needs one --lease ID";
        &["--limit", "--lease", "0123"], state(&id, &ours) => "is not this container's";
        &named, String::new() => "it is empty";
    } {
        let said = hook(&setup, arguments, state.as_bytes());
        said.exits(1).warns(words);
    }
    assert_eq!(limits(&setup), limited);
    setup.ends(&[&id]);
}

#[test]
fn hook_limits_no_other_level() {
    let setup = on(Low::Runc, Keeper::Misc);
    setup.configure("sharing.enforcement = [\"none\"]");
    for ask in [(SHARE, "2Gi"), ("runmig.dev/gpu", "1")] {
        let bundle = setup.bundle_with(&[ask]);
        let id = setup.create_new(&bundle);
        let lease = setup.the_lease()["id"].as_str().unwrap().to_owned();
        let state = json!({"id": &id, "bundle": bundle.path, "pid": std::process::id()});
        let state = state.to_string();
        let refused = hook(&setup, &["--limit", "--lease", &lease], state.as_bytes());
        refused.exits(1).warns("is not a share at the level driver");
        setup.delete(&id);
    }
    setup.nothing_is_left();
}
