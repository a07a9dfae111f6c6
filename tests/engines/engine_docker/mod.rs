//! The whole path from docker's API: a current engine, with the configuration that is shipped.

mod engine;
mod sharing;
mod without_mig;
mod words;

use serde_json::{Value, json};
use testkit::bundle::{OPEN, SHOW, all_open, nodes, visible};
use testkit::docker::{Docker, with, with_low};
use testkit::process::until;
use testkit::{Low, Setup, said};

/// It has the one slice there is, and can use it.
#[track_caller]
fn has_the_slice(setup: &Setup, docker: &Docker, container: &str) {
    let (lease, instance) = (setup.the_lease(), setup.machine.the_instance());
    assert_eq!(lease["container"], container);
    assert_eq!(lease["state"], "ready");
    assert_eq!(lease["migUUID"], instance.uuid);
    let saw = docker.exec(container, SHOW);
    assert_eq!(nodes(&saw), setup.machine.nodes_of(&instance), "{saw}");
    all_open(&docker.exec(container, OPEN));
}

#[test]
fn keeps_slice_while_container_runs() {
    with(false, lives_as_long);
}

#[test]
fn works_on_crun() {
    with_low(Low::NewCrun, false, |setup, docker| {
        lives_as_long(setup, docker);
        docker.passed("on crun");
    });
}

fn lives_as_long(setup: &Setup, docker: &mut Docker) {
    let id = docker.create("1g.10gb", &format!("{SHOW}; exec sleep 1000"));
    setup.nothing_is_left();
    docker.post(&id, "start").ok();
    let instance = setup.machine.the_instance();
    until("it printed", || docker.logs(&id).contains("VISIBLE="));
    let saw = docker.logs(&id);
    assert_eq!(visible(&saw), Some(instance.uuid.as_str()));
    assert_eq!(nodes(&saw), setup.machine.nodes_of(&instance));
    docker.passed("a slice by annotation");
    docker.passed("logs");
    has_the_slice(setup, docker, &id);
    docker.passed("exec");

    let gently = format!("/containers/{id}");
    assert_eq!(docker.ask("DELETE", &gently, &Value::Null).status, 409);
    has_the_slice(setup, docker, &id);
    docker.post(&id, "stop?t=0").ok();
    setup.nothing_is_left();
    docker.ask("DELETE", &gently, &Value::Null).ok();
    let id = docker.sleeping("1g.10gb");
    docker.remove(&id);
    setup.nothing_is_left();
    docker.passed("remove");
}

/// Each start is a create of the same id and bundle.
#[test]
fn stopped_started_and_restarted() {
    with(false, |setup, docker| {
        let id = docker.sleeping("1g.10gb");
        for _ in 0..2 {
            has_the_slice(setup, docker, &id);
            docker.post(&id, "stop?t=0").ok();
            setup.nothing_is_left();
            docker.post(&id, "start").ok();
        }
        has_the_slice(setup, docker, &id);
        docker.passed("stop, start again");
        let before = setup.the_lease();
        docker.post(&id, "restart?t=0").ok();
        has_the_slice(setup, docker, &id);
        assert_ne!(setup.the_lease()["id"], before["id"], "a slice of its own");
        docker.passed("restart");
        docker.post(&id, "kill").ok();
        until("the slice is back", || setup.leases().is_empty());
        docker.remove(&id);
        setup.nothing_is_left();
    });
}

/// An update writes the cgroup anew: its devices stay open to it.
#[test]
fn updated_and_paused() {
    with(false, |setup, docker| {
        let id = docker.sleeping("1g.10gb");
        let path = format!("/containers/{id}/update");
        docker
            .ask("POST", &path, &json!({"CpuShares": 512, "PidsLimit": 100}))
            .ok();
        has_the_slice(setup, docker, &id);
        docker.passed("update");
        docker.post(&id, "pause").ok();
        let instance = setup.machine.the_instance();
        setup.migctl(&["gc"]).ok();
        assert_eq!(setup.machine.the_instance(), instance);
        docker.post(&id, "unpause").ok();
        has_the_slice(setup, docker, &id);
        docker.passed("pause");
        docker.remove(&id);
        setup.nothing_is_left();
    });
}

/// No caller removes the container.
#[test]
fn releases_slice_of_ended_job() {
    with(false, |setup, docker| {
        let id = docker.create("1g.10gb", "exit 42");
        docker.post(&id, "start").ok();
        let ended = docker.post(&id, "wait").ok().json();
        assert_eq!(ended["StatusCode"], 42);
        until("the slice is back", || setup.leases().is_empty());
        setup.nothing_is_left();
        assert_eq!(docker.state(&id)["Status"], "exited");
        docker.passed("a job that ends by itself");
        docker.remove(&id);
        // as `docker run --rm` has it
        let ask = [("runmig.dev/slice", "1g.10gb")];
        let id = docker.create_with(&ask, "exit 0", json!({"AutoRemove": true}));
        docker.post(&id, "start").ok();
        until("the slice is back", || setup.leases().is_empty());
        setup.nothing_is_left();
    });
}

#[test]
fn gives_none_without_request() {
    with(false, |setup, docker| {
        let none = docker.create("none", SHOW);
        let silent = docker.create_with(&[], SHOW, Value::Null);
        for id in [none, silent] {
            docker.post(&id, "start").ok();
            docker.post(&id, "wait").ok();
            assert_eq!(docker.logs(&id), "VISIBLE=\n");
            docker.remove(&id);
        }
        assert!(!setup.state().exists());
        docker.passed("none");
    });
}

/// They share a network, as the containers of a pod do.
#[test]
fn gives_two_containers_different_slices() {
    with(false, |setup, docker| {
        let first = docker.sleeping("1g.10gb");
        let ask = [("runmig.dev/slice", "3g.40gb")];
        let share = json!({"NetworkMode": format!("container:{first}")});
        let second = docker.create_with(&ask, "exec sleep 1000", share);
        docker.post(&second, "start").ok();
        let mut profiles: Vec<String> = setup
            .machine
            .instances()
            .into_iter()
            .map(|instance| instance.profile)
            .collect();
        profiles.sort();
        assert_eq!(profiles, ["1g.10gb", "3g.40gb"]);
        let saw = [&first, &second].map(|id| nodes(&docker.exec(id, SHOW)));
        assert_ne!(saw[0], saw[1]);
        docker.remove(&second);
        docker.remove(&first);
        setup.nothing_is_left();
    });
}

/// docker asks for `features`, and shows them.
#[test]
fn answers_features() {
    with(false, |setup, docker| {
        let info = docker.ask("GET", "/info", &Value::Null).ok().json();
        let status = &info["Runtimes"]["runmig"]["status"];
        let features = status["org.opencontainers.runtime-spec.features"]
            .as_str()
            .expect("features");
        let bare = said(setup.plain(&setup.runtime).arg("features"))
            .ok()
            .json();
        let features: Value = serde_json::from_str(features).unwrap();
        assert_eq!(features["ociVersionMax"], bare["ociVersionMax"]);
        let unsafe_ones = features["potentiallyUnsafeConfigAnnotations"].as_array();
        assert!(unsafe_ones.unwrap().contains(&json!("runmig.")));
    });
}
