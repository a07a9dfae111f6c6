//! The choices of migctl list, and its forms for people.

use super::{claim, create, setup};
use testkit::Setup;

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
    let having = |is: &dyn Fn(&serde_json::Value) -> bool| -> Vec<String> {
        let ids = leases.iter().filter(|lease| is(lease));
        ids.map(|lease| lease["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(chosen(&setup, &[]), having(&|_| true));
    for kind in ["slice", "share", "gpu"] {
        let expected = having(&|lease| lease["kind"] == kind);
        assert_eq!(expected.len(), 1, "{kind}: {leases:?}");
        assert_eq!(chosen(&setup, &["--kind", kind]), expected, "{kind}");
    }
    assert!(chosen(&setup, &["--kind", "seat"]).is_empty());
    let team = having(&|lease| lease["namespace"] == "team");
    assert_eq!(chosen(&setup, &["--namespace", "team"]), team);
    let uuid = setup.machine.gpu_uuid(0).to_lowercase();
    assert_eq!(chosen(&setup, &["--gpu", "0"]), team);
    assert_eq!(chosen(&setup, &["--gpu", &uuid]), team);
    assert_eq!(chosen(&setup, &["--state", "ready"]), having(&|_| true));
    assert!(chosen(&setup, &["--state", "idle"]).is_empty());
    let json = setup.json(&["list", "-o", "json", "--kind", "slice"]);
    assert_eq!(json["items"].as_array().unwrap().len(), 1);
    assert_eq!(json["items"][0]["id"], team[0].as_str());
    let both = ["--namespace", "other", "--state", "ready", "--kind", "gpu"];
    assert_eq!(
        chosen(&setup, &both),
        having(&|lease| lease["kind"] == "gpu")
    );
}

#[test]
fn wide_adds_columns() {
    let setup = setup();
    claim(&setup, "train", 0);
    let said = setup.tells(&["list", "-o", "wide"]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].ends_with("LEASE"), "{said}");
    assert!(lines[1].ends_with(&chosen(&setup, &[])[0]), "{said}");
    assert!(lines[1].contains(&setup.machine.gpu_uuid(0)), "{said}");
}

#[test]
fn refuses_unknown_choices() {
    let setup = setup();
    for (call, word) in [
        (&["gpus", "-o", "name"][..], "migctl list"),
        (&["list", "--gpu", "A100"], "its index (0) or its UUID"),
        (&["list", "--kind", "card"], "slice, share, gpu, seat"),
        (&["list", "--state", "gone"], "quarantined"),
        (&["top", "--delay", "soon"], "--delay"),
        (
            &["top", "-o", "json"],
            "--output has no effect on migctl top",
        ),
        (
            &["metrics", "-o", "json"],
            "--output has no effect on migctl metrics",
        ),
        (
            &["completion", "bash", "-o", "json"],
            "--output has no effect",
        ),
        (
            &["version", "--config", "x"],
            "--config has no effect on migctl version",
        ),
        (
            &["--config", "x", "configure", "podman"],
            "--config has no effect",
        ),
        (&["--timeout", "9s", "version"], "--timeout has no effect"),
        (
            &["events", "--timeout", "9s"],
            "--timeout has no effect on migctl events",
        ),
        (
            &["release", "x", "--timeout", "9s"],
            "--timeout has no effect",
        ),
        (&["list", "--quiet", "-o", "json"], "--output"),
    ] {
        let said = setup.migctl(call).exits(2);
        assert!(said.stderr.contains(word), "{call:?}: {}", said.stderr);
    }
}
