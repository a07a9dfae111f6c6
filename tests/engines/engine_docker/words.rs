//! The answer of the API without a container, as the client prints it.

use testkit::docker::with;
use testkit::prelude::*;

/// The container is made, and does not start.
#[test]
fn answers_with_one_line() {
    with(false, |setup, docker| {
        for (key, more, line) in testkit::rows! {
            "runmig.dev/slice", json!({"Privileged": true}) =>
                "device rule linux.resources.devices[8] (allow a *:* rwm) lets the container open NVIDIA devices that it was not \
                 given, 195:1 for one; hint: run it unprivileged, with rules for the devices that it needs";
            "slice.runmig.dev/main", Value::Null =>
                "annotation slice.runmig.dev/main is for a container by name, but the engine gave this one no name; hint: use \
                 runmig.dev/slice";
        } {
            let id = docker.create_with(&[(key, "1g.10gb")], "true", more);
            let answer = docker.post(&id, "start");
            assert!(answer.status >= 400, "{}", answer.status);
            let wanted = format!(
                "failed to create task for container: failed to create shim task: OCI runtime create \
                 failed: runmig: {line}"
            );
            assert_eq!(answer.json()["message"], wanted);
            docker.remove(&id);
        }
        setup.nothing_is_left();
    });
}
