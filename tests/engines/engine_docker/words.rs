//! The answer of the API without a container, as the client prints it.

use serde_json::{Value, json};
use testkit::docker::{Docker, with};

/// The container is made, and does not start.
#[track_caller]
fn refused(docker: &Docker, annotations: &[(&str, &str)], more: Value, line: &str) {
    let id = docker.create_with(annotations, "true", more);
    let answer = docker.post(&id, "start");
    assert!(answer.status >= 400, "{}", answer.status);
    let wanted = format!(
        "failed to create task for container: failed to create shim task: OCI runtime create \
         failed: runmig: {line}"
    );
    assert_eq!(answer.json()["message"], wanted);
    docker.remove(&id);
}

#[test]
fn reports_no_room() {
    with(false, |setup, docker| {
        let whole = [docker.sleeping("7g.80gb"), docker.sleeping("7g.80gb")];
        refused(
            docker,
            &[("runmig.dev/slice", "1g.10gb")],
            Value::Null,
            "cannot allocate 1g.10gb: too few memory slices are free (0 of 16 on 2 GPUs, at \
             most 0 on one); hint: run migctl list to see who holds the slices, or set \
             runmig.dev/wait to wait",
        );
        assert_eq!(setup.leases().len(), 2);
        whole.iter().for_each(|id| docker.remove(id));
        setup.nothing_is_left();
        docker.passed("no room: the user reads why");
    });
}

#[test]
fn refuses_bad_requests() {
    with(false, |setup, docker| {
        for (key, value, line) in [
            (
                "runmig.dev/slice",
                "9g.90gb",
                "cannot allocate 9g.90gb: no GPU offers the profile; hint: request one of 7g.80gb, 4g.40gb, \
                 3g.40gb, 2g.20gb, 1g.20gb, 1g.10gb, 1g.10gb+me (nearest first)",
            ),
            (
                "runmig.dev/slice",
                "all",
                "annotation runmig.dev/slice: \"all\" is neither a profile nor an amount of memory; \
                 hint: ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none",
            ),
        ] {
            refused(docker, &[(key, value)], Value::Null, line);
        }
        refused(
            docker,
            &[("runmig.dev/slice", "1g.10gb")],
            json!({"Privileged": true}),
            "device rule linux.resources.devices[8] (allow a *:* rwm) lets the container open NVIDIA \
             devices that are not in its slice, 195:1 for one; hint: run it unprivileged, with rules \
             for the devices that it needs",
        );
        docker.passed("a wrong request: the user reads why");
        refused(
            docker,
            &[("slice.runmig.dev/main", "1g.10gb")],
            Value::Null,
            "annotation slice.runmig.dev/main is for a container by name, but the engine gave this \
             one no name; hint: use runmig.dev/slice",
        );
        setup.nothing_is_left();
    });
}
