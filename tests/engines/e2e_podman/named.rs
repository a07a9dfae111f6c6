//! A runtime whose file has a request, called by podman. No command asks here.

use crate::e2e_podman::images::{Image, hands_annotations_on};
use testkit::podman::{id, on_each};
use testkit::prelude::*;

const SMALL: &str = "slice = \"1g.10gb\"";
const FIXED: &str = "slice = \"1g.10gb\"\nfixed = true";

#[track_caller]
fn profiles(setup: &Setup) -> Vec<String> {
    let leases = setup.leases();
    let profile = |lease: &Value| lease["profile"].as_str().unwrap().to_owned();
    leases.iter().map(profile).collect()
}

#[test]
fn runtime_asks_for_containers() {
    on_each(Setup::of, |setup, podman| {
        podman.ask(SMALL);
        let made = podman.run("run", &["--detach"], "exec sleep 1000").ok();
        let saw = podman.podman(&["exec", id(&made), "sh", "-c", SHOW]).ok();
        let instance = setup.machine.the_instance();
        assert_eq!(nodes(&saw.stdout), setup.machine.nodes_of(&instance));
        // It has it again after a restart, which makes it anew from the same words.
        podman.podman(&["restart", "--time=0", id(&made)]).ok();
        assert_eq!(profiles(setup), ["1g.10gb"]);
        podman.remove(id(&made)).ok();
        setup.nothing_is_left();

        let none = ["--rm", "--annotation=runmig.dev/slice=none"];
        let said = podman.run("run", &none, SHOW).ok();
        assert_eq!(nodes(&said.stdout).len(), 0);
        let own = ["--detach", "--annotation=runmig.dev/slice=2g.20gb"];
        let made = podman.run("run", &own, "exec sleep 1000").ok();
        assert_eq!(profiles(setup), ["2g.20gb"]);
        podman.remove(id(&made)).ok();

        podman.ask(FIXED);
        for own in [&none[1], &own[1]] {
            let refused = podman.run("run", &["--rm", own], "true").exits(126);
            refused.warns("the container has its own request, runmig.dev/slice; hint: remove");
        }
        setup.nothing_is_left();
        testkit::table::passed(&podman.name(), "a slice by the runtime's request");
    });
}

/// What an image says neither takes the request away nor adds to it.
/// Failure: an image takes the request of its runtime away, or asks for more
#[test]
fn image_changes_nothing() {
    on_each(Setup::of, |setup, podman| {
        for request in [SMALL, FIXED] {
            podman.ask(request);
            for said in [
                ("runmig.dev/slice", "none"),
                ("runmig.dev/gpu", "none"),
                ("runmig.dev/slice", "7g.80gb"),
                ("runmig.dev/wait", "23h"),
                ("slice.runmig.dev/web", "none"),
                ("io.kubernetes.cri-o.ContainerType", "sandbox"),
            ] {
                let image = Image::new(podman, &[said, ("io.kubernetes.container.name", "web")]);
                match hands_annotations_on(podman) && said.0.starts_with("runmig.dev/") {
                    true => image.refused(&[], "the image carries the same"),
                    false => {
                        let made = image.start(&[]);
                        assert_eq!(profiles(setup), ["1g.10gb"], "{said:?}");
                        podman.remove(&made).ok();
                    }
                }
                setup.nothing_is_left();
            }
        }
    });
}

/// Failure: the container that holds a pod of podman together takes a slice of its runtime
#[test]
fn pods_own_container_has_nothing() {
    on_each(Setup::of, |setup, podman| {
        podman.import(testkit::podman::IMAGE, &["CMD [\"/bin/sleep\", \"1000\"]"]);
        podman.ask(FIXED);
        podman.podman(&["pod", "create", "--name=pair"]).ok();
        podman.podman(&["pod", "start", "pair"]).ok();
        setup.nothing_is_left();
        for name in ["--name=one", "--name=two"] {
            let options = ["--detach", "--pod=pair", name];
            podman.run("run", &options, "exec sleep 1000").ok();
        }
        assert_eq!(profiles(setup), ["1g.10gb", "1g.10gb"]);
        let both = ["rm", "--force", "--time=0", "one", "two"];
        podman.podman(&both).ok();
        setup.nothing_is_left();
        podman.podman(&["pod", "rm", "--all", "--force"]);
    });
}
