//! Hooks that fail, ours not run, ours run twice.

use crate::dying::victim::{SLEEPS, init, keeps_its_slice, the_next_create_has_room};
use crate::on_every_runtime;
use testkit::prelude::*;

on_every_runtime! {
    releases_after_early_failure,
    releases_after_late_failure,
    poststart_fails,
    another_poststop_fails,
    hook_runs_twice,
}

#[track_caller]
fn fails_and_leaves_nothing(setup: &Setup, what: &str, verb: &[&str], spoil: impl Fn(&mut Value)) {
    let bundle = setup.asking("1g.10gb", "true");
    bundle.edit(spoil);
    let (before, id) = (bundle.bytes(), unique());
    let mut arguments = verb.to_vec();
    arguments.extend(["-b", bundle.as_str(), &id]);
    let said = setup.runmig(&arguments);
    assert!(!said.status.success(), "{what}: {said:?}");
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before, "{what}");
    setup.runmig(&["delete", "--force", &id]);
    setup.nothing_is_left();
}

/// No low-level runtime runs poststop hooks then.
fn releases_after_early_failure(setup: &Setup) {
    for verb in [&["create"][..], &["run"], &["run", "-d"]] {
        fails_and_leaves_nothing(setup, "namespace", verb, |config| {
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.push(json!({"type": "network", "path": "/nowhere"}));
            namespaces.retain(|n| n["type"] != "network" || n["path"] == "/nowhere");
        });
        fails_and_leaves_nothing(setup, "rootfs", verb, |config| {
            config["root"]["path"] = json!("/nowhere");
        });
    }
}

/// runc runs them, crun does not.
fn releases_after_late_failure(setup: &Setup) {
    let broken = setup.path("broken");
    script(&broken, "exit 1");
    for verb in [&["create"][..], &["run"], &["run", "-d"]] {
        fails_and_leaves_nothing(setup, "mount", verb, |config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(bind("/nowhere", "/mnt", &["bind"]));
        });
        for hook in ["prestart", "createRuntime", "createContainer"] {
            fails_and_leaves_nothing(setup, hook, verb, |config| {
                config["hooks"][hook] = json!([{"path": &broken}]);
            });
        }
    }
    for verb in [&["run"][..], &["run", "-d"]] {
        fails_and_leaves_nothing(setup, "executable", verb, |config| {
            config["process"]["args"] = json!(["/nowhere"]);
        });
    }
}

fn with_hook(setup: &Setup, kind: &str, body: &str) -> Bundle {
    let bundle = setup.asking("1g.10gb", SLEEPS);
    let file = setup.path(&format!("hook-{}", unique()));
    script(&file, body);
    bundle.edit(|config| config["hooks"][kind] = json!([{"path": &file}]));
    bundle
}

/// Some low-level runtimes end the container then, and some do not: the slice goes with it.
fn poststart_fails(setup: &Setup) {
    let bundle = with_hook(setup, "poststart", "exit 1");
    let id = unique();
    // runc 1.1 runs them in `create` already; with crun the container runs on when `start` has failed.
    let created = setup.try_create(&bundle, &id);
    if created.status.success() {
        setup.runmig(&["start", &id]);
    }
    if setup.low.is_crun() {
        keeps_its_slice(setup, &id);
        kill(init(setup, &id));
    }
    until("nobody is in it", || in_cgroup(&bundle.cgroup()).is_empty());
    the_next_create_has_room(setup);
}

/// A hook after ours may fail: ours has run by then. And it may hide that ours did not.
fn another_poststop_fails(setup: &Setup) {
    let bundle = with_hook(setup, "poststop", "exit 1");
    let before = bundle.bytes();
    let id = unique();
    setup.create(&bundle, &id);
    setup.runmig(&["delete", "--force", &id]);
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
}

/// By a bundle that names it twice. In between, another gets the same instance, same UUID.
/// Failure: a second run of the hook
fn hook_runs_twice(setup: &Setup) {
    let (bundle, id) = setup.made("7g.80gb", SLEEPS);
    let hook = bundle.config()["hooks"]["poststop"][0].clone();
    let uuid = setup.machine.the_instance().uuid;
    setup.delete(&id);

    let file = setup.path("again");
    let words = hook["args"].as_array().unwrap().iter().skip(1);
    let words: Vec<&str> = words.map(|w| w.as_str().unwrap()).collect();
    let state = json!({"ociVersion": "1.0.2", "id": &id, "status": "stopped",
                       "bundle": bundle.path});
    let program = hook["path"].as_str().unwrap();
    let line = format!("echo '{state}' | {program} {}", words.join(" "));
    script(&file, &format!("{line}; {line}"));

    let (_, theirs) = setup.made("7g.80gb", SLEEPS);
    assert_eq!(setup.machine.the_instance().uuid, uuid, "it comes again");
    said(&mut Command::new(&file)).ok();
    keeps_its_slice(setup, &theirs);
    setup.ends(&[&theirs]);
}
