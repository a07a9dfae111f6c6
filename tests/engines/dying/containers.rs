//! The container or a part of it dies, and no engine is told.

use crate::dying::victim::{
    SLEEPS, init, keeps_its_slice, running, started, the_next_create_has_room,
};
use crate::on_every_runtime;
use testkit::prelude::*;
use testkit::process::first_thread_lives;

on_every_runtime! {
    other_processes_outlive_init,
    init_outlives_its_main_thread,
    collects_killed_undeleted_container,
    keeps_slice_while_paused,
    keeps_slice_before_start,
}

/// With the host's pid namespace the kernel does not end the others with init.
fn other_processes_outlive_init(setup: &Setup) {
    let script = "sleep 1000 & echo up; exec sleep 1001";
    let bundle = setup.asking("1g.10gb", script);
    bundle.edit(|config| {
        let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
        namespaces.retain(|n| n["type"] != "pid");
    });
    let id = unique();
    let init = started(setup, &bundle, &id);
    let inside = in_cgroup(&bundle.cgroup());
    assert_eq!(inside.len(), 2, "{inside:?}");
    kill(init);
    keeps_its_slice(setup, &id);
    in_cgroup(&bundle.cgroup()).into_iter().for_each(kill);
    the_next_create_has_room(setup);
}

/// A process whose first thread has ended looks like a zombie in `/proc`, and runs.
fn init_outlives_its_main_thread(setup: &Setup) {
    const SOURCE: &str = "
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static void *rest(void *p) { for (;;) pause(); return p; }
        int main(void) {
            pthread_t t;
            pthread_create(&t, 0, rest, 0);
            puts(\"up\");
            fflush(stdout);
            pthread_exit(0);
        }";
    let bundle = setup.asking("1g.10gb", "exec /bin/threads");
    let source = setup.path("threads.c");
    fs::write(&source, SOURCE).unwrap();
    let program = bundle.path.join("rootfs/bin/threads");
    let mut cc = Command::new("cc");
    said(
        cc.args(["-static", "-pthread", "-o"])
            .args([program, source]),
    )
    .ok();
    let id = unique();
    let created = setup.create(&bundle, &id);
    // Low-level runtimes say 0 later on.
    let init = init(setup, &id);
    setup.runmig(&["start", &id]).ok();
    until("it is up", || created.stdout_now().contains("up"));
    until("its first thread has ended", || !first_thread_lives(init));
    keeps_its_slice(setup, &id);
    // Low-level runtimes hold it for stopped, too, and do not kill it.
    kill(init);
    until("the rest has ended", || {
        setup.migctl(&["gc"]).ok();
        setup.leases().is_empty()
    });
    setup.nothing_is_left();
}

/// The remains of a container whose engine was killed with it.
/// Failure: a kill of init, and no engine calls `delete`
fn collects_killed_undeleted_container(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", SLEEPS);
    let before = bundle.bytes();
    let id = unique();
    let init = started(setup, &bundle, &id);
    keeps_its_slice(setup, &id);
    kill(init);
    the_next_create_has_room(setup);
    assert_eq!(bundle.bytes(), before);
    // Its state directory is still there, and a late delete finds nothing to release.
    setup.ends(&[&id]);
}

fn keeps_slice_while_paused(setup: &Setup) {
    let (_bundle, id, _) = running(setup);
    setup.runmig(&["pause", &id]).ok();
    keeps_its_slice(setup, &id);
    setup.runmig(&["resume", &id]).ok();
    keeps_its_slice(setup, &id);
    setup.ends(&[&id]);
}

/// An engine that is killed between create and start leaves a container that can be started still.
/// Failure: a kill of the engine between create and start
fn keeps_slice_before_start(setup: &Setup) {
    let (_, id) = setup.made("1g.10gb", "true");
    keeps_its_slice(setup, &id);
    kill(init(setup, &id));
    the_next_create_has_room(setup);
}
