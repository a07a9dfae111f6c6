//! The front dies, or the low-level runtime, or both, while a container is made.

use crate::dying::victim::{
    SLEEPS, at_the_beginning, child, create, ended, halfway, halfway_in, init, keeps_its_slice,
    the_next_create_has_room,
};
use crate::on_every_runtime;
use testkit::prelude::*;

on_every_runtime! {
    runtime_finishes_without_front,
    runtime_begins_without_front,
    containerd_kills_runtime_with_front,
    survives_kill_of_both,
    survives_with_init_alone,
    survives_killed_runtime,
    survives_kill_during_hook,
    late_collector_spares_new_create,
    foreground_run_outlives_front,
    foreground_run_outlives_runtime,
    foreground_run_outlives_both,
}

/// Nothing of a container is left, once its init has noticed that its makers are gone.
#[track_caller]
fn leaves_nothing(setup: &Setup, bundle: &Bundle, before: &[u8]) {
    let cgroup = bundle.cgroup();
    until("init has noticed", || in_cgroup(&cgroup).is_empty());
    the_next_create_has_room(setup);
    assert_eq!(bundle.bytes(), before);
}

/// Failure: a kill of `runmig` during the work of the low-level runtime
fn runtime_finishes_without_front(setup: &Setup) {
    let half = halfway(setup, "createRuntime");
    keeps_its_slice(setup, &half.id);
    half.front.kill();
    keeps_its_slice(setup, &half.id);
    drop(half.reached);
    ended("the low-level runtime has made it", half.runtime);
    keeps_its_slice(setup, &half.id);
    // No other process could tell that it is there.
    let lease = setup.the_lease();
    assert_eq!(lease["state"], "ready", "{lease}");
    assert_eq!(lease["initPid"], init(setup, &half.id));
    setup.runmig(&["start", &half.id]).ok();
    keeps_its_slice(setup, &half.id);
    let inside = ["exec", &half.id, "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES"];
    let saw = setup.runmig(&inside).ok().stdout;
    assert_eq!(saw.trim(), setup.machine.the_instance().uuid);
    setup.ends(&[&half.id]);
    assert_eq!(half.bundle.bytes(), half.before);
}

/// Nothing of a container is there that could speak for it but the low-level runtime itself.
fn runtime_begins_without_front(setup: &Setup) {
    let half = at_the_beginning(setup);
    keeps_its_slice(setup, &half.id);
    half.front.kill();
    keeps_its_slice(setup, &half.id);
    drop(half.reached);
    ended("the low-level runtime has made it", half.runtime);
    keeps_its_slice(setup, &half.id);
    setup.ends(&[&half.id]);
}

/// At its deadline containerd kills who makes a pod's container, and deletes nothing.
/// Failure: a kill of `runmig` during the work of the low-level runtime, by containerd, at its deadline for a pod's container
fn containerd_kills_runtime_with_front(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", SLEEPS);
    bundle.annotate("io.kubernetes.cri.container-type", "container");
    let half = halfway_in(setup, bundle, "createRuntime");
    half.front.kill();
    ended("the low-level runtime is killed too", half.runtime);
    leaves_nothing(setup, &half.bundle, &half.before);
}

fn survives_kill_of_both(setup: &Setup) {
    let half = halfway(setup, "createRuntime");
    half.front.kill();
    kill(half.runtime);
    leaves_nothing(setup, &half.bundle, &half.before);
}

/// It is in the container already, and waits for a hook that it runs itself.
fn survives_with_init_alone(setup: &Setup) {
    let half = halfway(setup, "createContainer");
    half.front.kill();
    kill(half.runtime);
    assert!(!in_cgroup(&half.bundle.cgroup()).is_empty());
    keeps_its_slice(setup, &half.id);
    drop(half.reached);
    leaves_nothing(setup, &half.bundle, &half.before);
}

fn survives_killed_runtime(setup: &Setup) {
    let half = halfway(setup, "createRuntime");
    kill(half.runtime);
    assert!(!half.front.end().status.success());
    until("init has noticed", || {
        in_cgroup(&half.bundle.cgroup()).is_empty()
    });
    setup.migctl(&["gc"]).ok();
    setup.nothing_is_left();
    assert_eq!(half.bundle.bytes(), half.before);
}

/// The front outlives it and sees it fail, but what it had begun is not over.
fn survives_kill_during_hook(setup: &Setup) {
    let half = halfway(setup, "createContainer");
    kill(half.runtime);
    assert!(!half.front.end().status.success());
    assert!(!in_cgroup(&half.bundle.cgroup()).is_empty());
    keeps_its_slice(setup, &half.id);
    drop(half.reached);
    leaves_nothing(setup, &half.bundle, &half.before);
}

/// It read the ledger when the front had not started anything yet, and comes to this lease when the
/// front is dead: what it knows is out of date.
fn late_collector_spares_new_create(setup: &Setup) {
    setup.configure("lock_timeout = \"60s\"");
    let gate = Gate::new(&setup.path("gate"));
    // A lease to be busy with in between, on the driver's side of things.
    let dead = halfway(setup, "createRuntime");
    dead.front.kill();
    kill(dead.runtime);
    until("init has noticed", || {
        in_cgroup(&dead.bundle.cgroup()).is_empty()
    });
    let old = setup.the_lease()["created"].as_str().unwrap().to_owned();
    // The older lease comes first, and they are dated to the second.
    until("it is older", || {
        let now = std::time::SystemTime::now();
        humantime::format_rfc3339_seconds(now).to_string() > old
    });
    let gpu = setup.machine.the_instance().gpu_uuid;
    let file = setup.state().join(format!("gpu-{gpu}.lock"));
    let lock = File::create(&file).unwrap();

    gate.before(setup);
    // The create has its lease on record, and waits for the GPU.
    fs2::FileExt::lock_exclusive(&lock).unwrap();
    let (bundle, id) = (setup.asking("1g.10gb", SLEEPS), unique());
    let front = create(setup, &bundle, &id);
    until("it is on record", || setup.leases().len() == 2);
    front.waits_for(&file);

    // The collector has read it too, and waits for the GPU to release the other.
    let mut gc = setup.plain(&setup.program("migctl"));
    let collector = going(gc.arg("gc").stdin(Stdio::null()));
    until("the other is on its way out", || {
        setup.leases().iter().any(|l| l["state"] == "releasing")
    });
    // It holds no other lock then, and stopped it does not get this one.
    collector.waits_for(&file);
    collector.stop();
    drop(lock);
    let reached = gate.reached();
    let runtime = child(&front);
    front.kill();
    collector.signal(Signal::SIGCONT);
    collector.end().ok();
    keeps_its_slice(setup, &id);
    drop(reached);
    ended("the low-level runtime has made it", runtime);
    keeps_its_slice(setup, &id);
    setup.ends(&[&id]);
}

struct Foreground {
    id: String,
    bundle: Bundle,
    front: Going,
    runtime: i32,
    init: i32,
}

fn foreground(setup: &Setup) -> Foreground {
    let bundle = setup.asking("1g.10gb", SLEEPS);
    let id = unique();
    let mut command = setup.command(&["run", "-b", bundle.as_str(), &id]);
    let mut front = going(command.stdin(Stdio::null()));
    front.until("up");
    testkit::sharing::ready(setup, &id);
    Foreground {
        runtime: child(&front),
        init: init(setup, &id),
        id,
        bundle,
        front,
    }
}

/// Its low-level runtime sees the end of the container, and its hook releases the slice.
fn foreground_run_outlives_front(setup: &Setup) {
    let run = foreground(setup);
    run.front.kill();
    keeps_its_slice(setup, &run.id);
    kill(run.init);
    ended("the low-level runtime is done", run.runtime);
    setup.nothing_is_left();
}

/// The front sees its child die, and the container runs on.
fn foreground_run_outlives_runtime(setup: &Setup) {
    let run = foreground(setup);
    kill(run.runtime);
    let said = run.front.end();
    assert!(!said.status.success());
    assert!(lives(run.init), "this is about a container that lives on");
    keeps_its_slice(setup, &run.id);
    kill(run.init);
    the_next_create_has_room(setup);
}

fn foreground_run_outlives_both(setup: &Setup) {
    let run = foreground(setup);
    run.front.kill();
    kill(run.runtime);
    assert!(lives(run.init), "this is about a container that lives on");
    keeps_its_slice(setup, &run.id);
    kill(run.init);
    until("nobody is in it", || {
        in_cgroup(&run.bundle.cgroup()).is_empty()
    });
    the_next_create_has_room(setup);
}
