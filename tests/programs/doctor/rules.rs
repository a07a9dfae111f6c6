//! The configuration: rules without effect, and the files of other handlers.

use super::breaking::{breaks, breaks_inside};
use super::programs::etc;
use super::setup;
use std::fs;

#[test]
fn names_broken_handler() {
    let Some(setup) = setup() else { return };
    let with = |text: &str| {
        let etc = etc(&setup);
        format!("{etc}\nmkdir /etc/runmig; echo '{text}' >/etc/runmig/other.toml")
    };
    let runtime = format!("runtime = \"{}\"", setup.runtime.display());
    let (good, bad) = (with(&runtime), with("nonsense = 1"));
    let group = "programs,configuration";
    let id = "configuration.handler";
    let (text, _) = breaks_inside(&setup, group, "fail", id, [&good, &bad]);
    assert!(
        text.contains("/etc/runmig/other.toml") && text.contains("nonsense"),
        "{text}"
    );
}

#[test]
fn names_rules_without_effect() {
    let Some(setup) = setup() else { return };
    let good = fs::read_to_string(setup.config()).unwrap();
    let write = |text: &str| fs::write(setup.config(), text).unwrap();
    for (id, rule, told) in [
        (
            "configuration.limits",
            "[[policy.limit]]\nslices = 2\ngpus = 4",
            "limits are out of reach: [[policy.limit]] 1 permits 4 GPUs, and the GPUs give 1 at most",
        ),
        (
            "configuration.profiles",
            "[policy]\nprofiles = [\"9g.*\"]",
            "policy.profiles permits no profile that this machine offers, so it refuses every slice",
        ),
    ] {
        let bad = format!("{good}\n{rule}\n");
        let (text, repair) = breaks(
            &setup,
            "configuration",
            "warn",
            id,
            || write(&bad),
            || write(&good),
        );
        assert_eq!(text, told);
        assert!(
            repair.contains(setup.config().to_str().unwrap()) || id.ends_with("profiles"),
            "{repair}"
        );
    }
}

#[test]
fn names_broken_layout() {
    let Some(setup) = setup() else { return };
    let config = fs::read_to_string(setup.config()).unwrap();
    let file = setup.config().with_file_name("layouts.yaml");
    let section = format!("[layout]\nfile = {file:?}\nconfig = \"day\"\n");
    fs::write(setup.config(), config + &section).unwrap();
    let write = |name: &str| {
        let text = format!(
            "version: v1\nmig-configs:\n  {name}:\n  - {{devices: all, mig-enabled: off}}\n"
        );
        fs::write(&file, text).unwrap();
    };
    write("day");
    let id = "configuration.layout";
    let (text, repair) = breaks(
        &setup,
        "configuration",
        "warn",
        id,
        || write("night"),
        || write("day"),
    );
    assert!(
        text.contains("layouts.yaml") && text.contains("day"),
        "{text}"
    );
    assert!(repair.contains("night"), "{repair}");
}
