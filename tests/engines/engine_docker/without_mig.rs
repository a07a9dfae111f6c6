//! Shares and whole GPUs from docker's API.

use serde_json::Value;
use testkit::bundle::{SHOW, nodes, visible};
use testkit::cuda::{HAS_SOCKET, SOCKETS};
use testkit::docker::{Docker, on_setup};
use testkit::process::until;
use testkit::{Low, Machine, Setup};

fn on_l4(test: impl Fn(&Setup, &mut Docker)) {
    if let Some(setup) = Setup::on(Low::NewRunc, Machine::with(&["--gpu", "L4"])) {
        setup.configure("sharing.enforcement = [\"none\"]");
        on_setup(&setup, false, test);
    }
}

/// Starts a container that sees the GPU.
fn sees_gpu(setup: &Setup, docker: &Docker, asks: (&str, &str)) -> String {
    let script = format!("{SHOW}; exec sleep 1000");
    let id = docker.create_with(&[asks], &script, Value::Null);
    docker.post(&id, "start").ok();
    until("it printed", || docker.logs(&id).contains("VISIBLE="));
    let saw = docker.logs(&id);
    let uuid = setup.machine.gpu_uuid(0);
    assert_eq!(visible(&saw), Some(uuid.as_str()));
    assert!(nodes(&saw).contains_key("nvidia0"), "{saw}");
    id
}

/// Returns docker's words for a container that is refused.
fn refused(docker: &Docker, asks: (&str, &str)) -> String {
    let id = docker.create_with(&[asks], "true", Value::Null);
    let said = docker.post(&id, "start");
    assert_ne!(said.status, 204);
    docker.remove(&id);
    String::from_utf8_lossy(&said.body).into_owned()
}

#[test]
fn shares_gpu() {
    on_l4(|setup, docker| {
        let first = sees_gpu(setup, docker, ("runmig.dev/share", "8Gi"));
        let second = sees_gpu(setup, docker, ("runmig.dev/share", "1/4"));
        let words = refused(docker, ("runmig.dev/share", "12Gi"));
        assert!(words.contains("no GPU has room for it"), "{words}");
        docker.remove(&first);
        assert_eq!(setup.the_lease()["container"], second.as_str());
        docker.remove(&second);
        setup.nothing_is_left();
        docker.passed("a share at none");
    });
}

#[test]
fn gives_whole_gpu() {
    on_l4(|setup, docker| {
        let id = sees_gpu(setup, docker, ("runmig.dev/gpu", "1"));
        assert_eq!(setup.the_lease()["kind"], "gpu");
        let words = refused(docker, ("runmig.dev/gpu", "1"));
        assert!(words.contains("has it"), "{words}");
        docker.remove(&id);
        setup.nothing_is_left();
        docker.passed("a whole GPU");
    });
}

#[test]
fn starts_mps_daemon() {
    let machine = Machine::with(&["--gpu", "L4", "--mps"]);
    let Some(setup) = Setup::on(Low::NewRunc, machine) else {
        return;
    };
    on_setup(&setup, false, |setup: &Setup, docker: &mut Docker| {
        let script = format!("{SOCKETS}; exec sleep 1000");
        let id = docker.create_with(&[("runmig.dev/share", "8Gi")], &script, Value::Null);
        docker.post(&id, "start").ok();
        until("it printed", || docker.logs(&id).contains("SOCKETS"));
        assert!(
            docker.logs(&id).contains(HAS_SOCKET),
            "{}",
            docker.logs(&id)
        );
        assert_eq!(setup.the_lease()["daemon"]["alive"], true);
        docker.remove(&id);
        setup.nothing_is_left();
        docker.passed("a share at mps");
    });
}
