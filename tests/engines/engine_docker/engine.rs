//! dockerd and containerd, stopped, killed and started again under a container that runs.

use crate::engine_docker::has_the_slice;
use testkit::docker::with;
use testkit::prelude::*;

#[test]
fn restarted_with_live_restore() {
    with(true, |setup, docker| {
        let id = docker.sleeping("1g.10gb");
        let before = setup.the_lease();
        docker.stop_dockerd();
        setup.migctl(&["gc"]).ok();
        assert_eq!(setup.the_lease()["id"], before["id"]);
        docker.start_dockerd();
        has_the_slice(setup, docker, &id);
        assert_eq!(setup.the_lease()["id"], before["id"]);
        docker.remove(&id);
        setup.nothing_is_left();
        table::passed(&docker.name(), "the engine is restarted");
    });
}

/// dockerd takes its containers down with it; those with a restart policy come up again, with a new
/// slice.
#[test]
fn restarted_without_live_restore() {
    with(false, |setup, docker| {
        let gone = docker.sleeping("3g.40gb");
        let ask = [("runmig.dev/slice", "1g.10gb")];
        let policy = json!({"RestartPolicy": {"Name": "always"}});
        let back = docker.create_with(&ask, "exec sleep 1000", policy);
        docker.post(&back, "start").ok();
        let before = setup.leases();
        docker.stop_dockerd();
        setup.nothing_is_left();
        docker.start_dockerd();
        until("it is back", || setup.leases().len() == 1);
        until("it runs", || docker.state(&back)["Status"] == "running");
        has_the_slice(setup, docker, &back);
        let now = setup.the_lease();
        assert!(before.iter().all(|old| old["id"] != now["id"]));
        assert_eq!(docker.state(&gone)["Status"], "exited");
        docker.remove(&gone);
        docker.remove(&back);
        setup.nothing_is_left();
    });
}

/// When it comes back it ends what runs on from before.
#[test]
fn killed_without_live_restore() {
    with(false, |setup, docker| {
        let id = docker.sleeping("1g.10gb");
        let init = setup.the_lease()["initPid"].as_i64().unwrap() as i32;
        docker.kill_dockerd();
        setup.migctl(&["gc"]).ok();
        assert!(lives(init));
        assert_eq!(setup.the_lease()["container"], id);
        docker.start_dockerd();
        until("it is ended", || !lives(init));
        until("the slice is back", || setup.leases().is_empty());
        docker.remove(&id);
        setup.nothing_is_left();
    });
}
