//! One id, several containers: deletes that come too early, too often or for nobody, and hooks that
//! come when the id has another owner already.

use crate::dying::victim::{
    SLEEPS, at_the_beginning, ended, halfway, init, keeps_its_slice, running, started,
    the_next_create_has_room,
};
use crate::on_every_runtime;
use testkit::prelude::*;

on_every_runtime! {
    deletes_twice,
    deletes_during_its_create,
    refuses_create_of_running_container,
    refuses_create_of_running_plain_container,
    refuses_create_during_create,
    create_of_dead_container_releases,
    recreates_forgotten_container,
    old_hook_spares_successor,
    hook_without_lease_matches_container,
    old_hook_during_successor_create,
}

/// The same answer as the low-level runtime's own.
#[track_caller]
fn deletes_as_bare(setup: &Setup, arguments: &[&str]) {
    let bare = said(&mut setup.bare(arguments));
    let ours = setup.runmig(arguments);
    assert_eq!(ours.status.code(), bare.status.code(), "{arguments:?}");
}

/// Failure: a second `delete`
fn deletes_twice(setup: &Setup) {
    let (_bundle, id, init) = running(setup);
    kill(init);
    setup.runmig(&["delete", &id]).ok();
    setup.nothing_is_left();
    deletes_as_bare(setup, &["delete", &id]);
    deletes_as_bare(setup, &["delete", "--force", &id]);
    setup.nothing_is_left();
}

/// The delete may do anything to a container that is half there. As long as a process is at work on
/// it, the container keeps its slice, and the create's last word is true.
fn deletes_during_its_create(setup: &Setup) {
    for force in [false, true] {
        let half = halfway(setup, "createRuntime");
        let mut delete = vec!["delete"];
        delete.extend(force.then_some("--force"));
        delete.push(&half.id);
        setup.runmig(&delete);
        keeps_its_slice(setup, &half.id);
        drop(half.reached);
        if half.front.end().status.success() {
            keeps_its_slice(setup, &half.id);
            setup.runmig(&["delete", "--force", &half.id]).ok();
        }
        setup.migctl(&["gc"]).ok();
        setup.nothing_is_left();
        assert_eq!(half.bundle.bytes(), half.before);
    }
}

fn refuses_create_of_running_container(setup: &Setup) {
    let (bundle, id, _) = running(setup);
    let (lease, bytes) = (setup.the_lease(), bundle.bytes());
    let other = setup.asking("1g.10gb", SLEEPS);
    for again in [&bundle, &other] {
        let before = again.bytes();
        // runc: "container with given ID already exists"; crun: "container `c` already exists".
        let words = format!("container {id} exists already");
        setup.try_create(again, &id).refused_for(&words);
        assert_eq!(again.bytes(), before);
    }
    assert_eq!(setup.the_lease(), lease);
    assert_eq!(bundle.bytes(), bytes);
    keeps_its_slice(setup, &id);
    setup.ends(&[&id]);
}

/// Its life is not that of the slice that the second create asks for.
fn refuses_create_of_running_plain_container(setup: &Setup) {
    let (bundle, id) = (setup.bundle(SLEEPS), unique());
    let run = ["run", "-d", "-b", bundle.as_str(), &id];
    setup.runmig(&run).ok();
    let other = setup.asking("1g.10gb", SLEEPS);
    let before = other.bytes();
    let words = format!("container {id} exists already (its init, process ");
    setup.try_create(&other, &id).refused_for(&words);
    assert_eq!(other.bytes(), before);
    setup.nothing_is_left();
    setup.delete(&id);
}

fn refuses_create_during_create(setup: &Setup) {
    let half = halfway(setup, "createRuntime");
    let other = setup.asking("1g.10gb", SLEEPS);
    let before = other.bytes();
    let create = ["create", "-b", other.as_str(), &half.id];
    setup.runmig(&create).refused_for("exists already");
    assert_eq!(other.bytes(), before);
    half.front.kill();
    setup.runmig(&create).refused_for("exists already");
    keeps_its_slice(setup, &half.id);
    drop(half.reached);
    ended("the low-level runtime has made it", half.runtime);
    setup.runmig(&create).refused_for("exists already");
    keeps_its_slice(setup, &half.id);
    setup.ends(&[&half.id]);
    assert_eq!(other.bytes(), before);
}

/// The low-level runtime wants it deleted first, so that is what is said; then it works.
fn create_of_dead_container_releases(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", SLEEPS);
    let before = bundle.bytes();
    let id = unique();
    kill(started(setup, &bundle, &id));
    let again = setup.try_create(&bundle, &id);
    assert!(!again.status.success());
    has(&again.stderr, "exist");
    setup.nothing_is_left();
    assert_eq!(bundle.bytes(), before);
    setup.runmig(&["delete", &id]).ok();
    started(setup, &bundle, &id);
    keeps_its_slice(setup, &id);
    setup.delete(&id);
    assert_eq!(bundle.bytes(), before);
    setup.nothing_is_left();
}

/// Its state directory is gone with it: the id is free, and the old slice is back at once.
fn recreates_forgotten_container(setup: &Setup) {
    let bundle = setup.asking("7g.80gb", SLEEPS);
    let before = bundle.bytes();
    let id = unique();
    kill(started(setup, &bundle, &id));
    let old = setup.the_lease()["id"].clone();
    fs::remove_dir_all(setup.root("a").join(&id)).unwrap();
    started(setup, &bundle, &id);
    assert_ne!(setup.the_lease()["id"], old);
    setup.machine.the_instance();
    setup.ends(&[&id]);
    assert_eq!(bundle.bytes(), before);
}

/// The hook as the bundle has it now.
fn hook_of(bundle: &Bundle) -> Value {
    bundle.config()["hooks"]["poststop"][0].clone()
}

/// As a low-level runtime calls a hook, late.
#[track_caller]
fn call(setup: &Setup, hook: &Value, id: &str, bundle: &Bundle) -> Said {
    let state =
        json!({"ociVersion": "1.0.2", "id": id, "status": "stopped", "bundle": bundle.path});
    let file = setup.path(&format!("state-{}", unique()));
    fs::write(&file, state.to_string()).unwrap();
    let mut command = Command::new(hook["path"].as_str().unwrap());
    command.env_clear().stdin(fs::File::open(&file).unwrap());
    let words = hook["args"].as_array().unwrap().iter().skip(1);
    command.args(words.map(|w| w.as_str().unwrap()));
    going(&mut command).end().ok()
}

/// As an administrator puts it into hooks.d.
fn without_lease(setup: &Setup) -> Value {
    let config = setup.config().display().to_string();
    json!({"path": setup.program("runmig-hook"), "args": ["runmig-hook", "--config", config]})
}

/// Failure: a late hook, after another create under the same id
fn old_hook_spares_successor(setup: &Setup) {
    let (bundle, id, _) = running(setup);
    let old = hook_of(&bundle);
    setup.delete(&id);
    // Twice, and for an unknown container.
    call(setup, &old, &id, &bundle);
    call(setup, &old, &id, &bundle);
    setup.nothing_is_left();

    let created = ["create", "-b", bundle.as_str(), &id];
    for verb in [&created[..], &["start", &id]] {
        setup.runmig(verb).ok();
        assert_ne!(hook_of(&bundle), old);
        for hook in [&old, &without_lease(setup)] {
            call(setup, hook, &id, &bundle);
            keeps_its_slice(setup, &id);
        }
    }
    // Even its own, as long as it runs.
    call(setup, &hook_of(&bundle), &id, &bundle);
    keeps_its_slice(setup, &id);
    setup.ends(&[&id]);
}

/// It releases its own container's slice and no other.
fn hook_without_lease_matches_container(setup: &Setup) {
    let (bundle, id, init) = running(setup);
    kill(init);
    let hook = without_lease(setup);
    call(setup, &hook, "somebody-else", &bundle);
    let elsewhere = setup.bundle("true");
    call(setup, &hook, &id, &elsewhere);
    setup.the_lease();
    call(setup, &hook, &id, &bundle);
    setup.nothing_is_left();
    setup.delete(&id);
}

/// There is no init yet whose life would speak for it: who makes it does.
fn old_hook_during_successor_create(setup: &Setup) {
    let half = at_the_beginning(setup);
    let id = half.id.clone();
    let late = without_lease(setup);
    call(setup, &late, &id, &half.bundle);
    keeps_its_slice(setup, &id);
    half.front.kill();
    call(setup, &late, &id, &half.bundle);
    keeps_its_slice(setup, &id);
    drop(half.reached);
    ended("the low-level runtime has made it", half.runtime);
    call(setup, &late, &id, &half.bundle);
    keeps_its_slice(setup, &id);
    setup.runmig(&["start", &id]).ok();
    kill(init(setup, &id));
    until("it is dead", || {
        call(setup, &late, &id, &half.bundle);
        setup.leases().is_empty()
    });
    the_next_create_has_room(setup);
}
