//! The whole path from docker's API: a current engine, with the configuration that is shipped.

mod engine;
mod words;

use testkit::bundle::all_open;
use testkit::docker::{Docker, with};
use testkit::prelude::*;

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
        table::passed(&docker.name(), "a job that ends by itself");
        docker.remove(&id);
        // as `docker run --rm` has it
        let ask = [("runmig.dev/slice", "1g.10gb")];
        let id = docker.create_with(&ask, "exit 0", json!({"AutoRemove": true}));
        docker.post(&id, "start").ok();
        until("the slice is back", || setup.leases().is_empty());
        setup.nothing_is_left();
    });
}

/// As docker-py, Nomad and others call it: by the name of a runtime alone.
#[test]
fn runtime_asks_for_containers() {
    with(false, |setup, docker| {
        docker.ask_for_all(setup, "slice = \"1g.10gb\"\nfixed = true");
        let id = docker.create_with(&[], "exec sleep 1000", Value::Null);
        docker.post(&id, "start").ok();
        has_the_slice(setup, docker, &id);
        assert_eq!(setup.the_lease()["profile"], "1g.10gb");
        docker.post(&id, "restart?t=0").ok();
        has_the_slice(setup, docker, &id);
        docker.remove(&id);
        setup.nothing_is_left();
        for (key, value) in [("runmig.dev/slice", "none"), ("runmig.dev/gpu", "1")] {
            let id = docker.create_with(&[(key, value)], "true", Value::Null);
            let answer = docker.post(&id, "start");
            let said = answer.json()["message"].as_str().unwrap().to_owned();
            let words = format!("the container has its own request, {key}; hint: remove");
            has(&said, &words);
            docker.remove(&id);
        }
        docker.ask_for_all(setup, "slice = \"1g.10gb\"");
        let id = docker.create_with(&[("runmig.dev/slice", "none")], SHOW, Value::Null);
        docker.post(&id, "start").ok();
        docker.post(&id, "wait").ok();
        assert_eq!(nodes(&docker.logs(&id)).len(), 0);
        docker.remove(&id);
        setup.nothing_is_left();
        testkit::table::passed(&docker.name(), "a slice by the runtime's request");
    });
}
