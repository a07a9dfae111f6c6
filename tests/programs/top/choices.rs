//! The choices of migctl list, and its forms for people.

use super::{claim, create, setup};
use testkit::prelude::*;

/// Returns the ids of the leases that a call chooses.
fn chosen(setup: &Setup, choice: &[&str]) -> Vec<String> {
    let said = setup.migctl(&[&["list", "-o", "name"], choice].concat());
    said.ok().stdout.lines().map(str::to_owned).collect()
}

#[test]
fn chooses_by_gpu_namespace_state_kind() {
    let setup = setup();
    claim(&setup, "train", 0);
    create(&setup, "other", &[("runmig.dev/share", "4Gi")]);
    create(&setup, "other", &[("runmig.dev/gpu", "1")]);
    let leases = setup.leases();
    let having = |field: &str, value: &str| -> Vec<String> {
        let ids = leases.iter().filter(|lease| lease[field] == value);
        ids.map(|lease| lease["id"].as_str().unwrap().to_owned())
            .collect()
    };
    for kind in ["slice", "share", "gpu"] {
        assert_eq!(having("kind", kind).len(), 1, "{kind}: {leases:?}");
    }
    let uuid = setup.machine.gpu_uuid(0).to_lowercase();
    for (choice, field, value) in testkit::rows! {
        &[][..], "state" => "ready";
        &["--state", "ready"], "state" => "ready";
        &["--state", "idle"], "state" => "idle";
        &["--kind", "slice"], "kind" => "slice";
        &["--kind", "share"], "kind" => "share";
        &["--kind", "gpu"], "kind" => "gpu";
        &["--kind", "seat"], "kind" => "seat";
        &["--namespace", "team"], "namespace" => "team";
        &["--gpu", "0"], "namespace" => "team";
        &["--gpu", &uuid], "namespace" => "team";
        &["--namespace=other", "--state=ready", "--kind=gpu"], "kind" => "gpu";
    } {
        assert_eq!(chosen(&setup, choice), having(field, value), "{choice:?}");
    }
    let items = setup.items(&["list", "--kind", "slice"]);
    assert_eq!(items.len(), 1);
    assert_eq!(items[0]["id"], having("namespace", "team")[0].as_str());
}

#[test]
fn wide_adds_columns() {
    let setup = setup();
    claim(&setup, "train", 0);
    let said = setup.tells(&["list", "-o", "wide"]);
    let lines: Vec<&str> = said.lines().collect();
    ends_with(lines[0], "LEASE");
    ends_with(lines[1], &chosen(&setup, &[])[0]);
    has(lines[1], &setup.machine.gpu_uuid(0));
}

#[test]
fn refuses_unknown_choices() {
    let setup = setup();
    for (call, word) in testkit::rows! {
        &["gpus", "-o", "name"][..] => "migctl list";
        &["list", "--gpu", "A100"] => "its index (0) or its UUID";
        &["list", "--kind", "card"] => "slice, share, gpu, seat";
        &["list", "--state", "gone"] => "quarantined";
        &["top", "--delay", "soon"] => "--delay";
        &["top", "-ojson"] => "--output has no effect on migctl top";
        &["metrics", "-ojson"] => "--output has no effect on migctl metrics";
        &["completion", "bash", "-ojson"] => "--output has no effect";
        &["version", "--config=x"] => "--config has no effect on migctl version";
        &["--config=x", "configure", "podman"] => "--config has no effect";
        &["--timeout=9s", "version"] => "--timeout has no effect";
        &["events", "--timeout=9s"] => "--timeout has no effect on migctl events";
        &["release", "x", "--timeout=9s"] => "--timeout has no effect";
        &["list", "--quiet", "-o", "json"] => "--output";
    } {
        eprintln!("{call:?}");
        setup.migctl(call).exits(2).warns(word);
    }
}
