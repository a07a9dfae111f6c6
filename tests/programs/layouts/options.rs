//! Options and variables of mig-parted, and the output of migctl's own.

use crate::layouts::ours::Ours;
use testkit::Machine;
use testkit::process::said;

const FILE: &str = "version: v1\nmig-configs:\n  on:\n  - {devices: all, mig-enabled: true, mig-devices: {}}\n  \
                    all-off:\n  - {devices: all, mig-enabled: off}\n";

#[test]
fn variables_stand_for_options() {
    let ours = Ours::on(Machine::new("A30", 1));
    let file = ours.file(FILE);
    let run = |verb: &str, variables: &[(&str, &str)]| {
        let mut command = ours.command(&["-d", verb]);
        command.env("MIG_PARTED_CONFIG_FILE", &file);
        command.env("MIG_PARTED_SELECTED_CONFIG", "all-off");
        said(command.envs(variables.iter().copied()))
    };
    run("assert", &[]).exits(1);
    let valid = run("assert", &[("MIG_PARTED_VALID_CONFIG", "1")]).ok();
    assert_eq!(valid.stdout, "Selected MIG configuration is valid\n");
    run("assert", &[("MIG_PARTED_VALID_CONFIG", "F")]).exits(1);
    run("assert", &[("MIG_PARTED_VALID_CONFIG", "perhaps")]).exits(2);
    let export = [
        ("MIG_PARTED_OUTPUT_FORMAT", "json"),
        ("MIG_PARTED_CONFIG_LABEL", "now"),
    ];
    let exported = run("export", &export).ok().json();
    assert_eq!(exported["mig-configs"]["now"][0]["devices"], "all");
    let to = ours.path("saved");
    run(
        "checkpoint",
        &[("MIG_PARTED_CHECKPOINT_FILE", to.to_str().unwrap())],
    )
    .ok();
    assert!(to.exists());
    let line = run("checkpoint", &[]).refused();
    assert!(
        line.ends_with("hint: name one with --checkpoint-file"),
        "{line}"
    );
}

#[test]
fn assertion_names_each_difference() {
    let ours = Ours::on(Machine::new("A30", 2));
    ours.machine
        .sim("create", &["--gpu", "1", "--profile", "1g.6gb"]);
    let said = ours.migctl(&["export", "-o", "yaml"]).ok();
    let file = ours.file(&said.stdout);
    ours.assert(&file, &[]).ok();
    let modes = ours.assert(&file, &["--mode-only"]).ok();
    let expected = "Selected MIG mode settings from configuration currently applied\n";
    assert_eq!(modes.stdout, expected);
    ours.machine
        .sim("create", &["--gpu", "1", "--profile", "1g.6gb"]);
    let said = ours.assert(&file, &[]).exits(1);
    let expected = "migctl: Assertion failure: selected configuration not currently applied\n\
                    migctl: GPU 1: it has 2 × 1g.6gb, and the layout has 1 × 1g.6gb\n";
    assert_eq!(said.stderr, expected);
    let json = ours.assert(&file, &["-o", "json"]).exits(1).json();
    assert_eq!(json["kind"], "LayoutAssertion");
    assert_eq!(json["applied"], false);
    let difference = "it has 2 × 1g.6gb, and the layout has 1 × 1g.6gb";
    assert_eq!(json["gpus"][1]["difference"], difference);
    assert_eq!(json["gpus"][0]["difference"], serde_json::Value::Null);
    let json = ours.migctl(&["-o", "json", "export"]).ok().json();
    assert_eq!(json["version"], "v1");
}

#[test]
fn configuration_names_machines_layout() {
    let ours = Ours::on(Machine::new("A30", 1));
    let file = ours.file(
        "version: v1\nmig-configs:\n  empty:\n  - {devices: all, mig-enabled: true, mig-devices: {}}\n  \
         one:\n  - {devices: all, mig-enabled: true, mig-devices: {1g.6gb: 1}}\n",
    );
    let missing = ours.migctl(&["apply"]).refused();
    let hint = "hint: name one with --config-file, or set layout.file in runmig's configuration";
    assert!(missing.ends_with(hint), "{missing}");

    let path = ours.path("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let section = |config: &str| {
        let text = format!("{text}[layout]\nfile = {file:?}\nconfig = {config:?}\n");
        std::fs::write(&path, text).unwrap();
    };
    section("gone");
    let gone = ours.migctl(&["apply"]).refused();
    let cause = format!("cannot select a configuration of {}: ", file.display());
    assert!(gone.contains(&cause) && gone.contains("gone"), "{gone}");

    section("one");
    ours.migctl(&["assert"]).exits(1);
    let other = file.to_str().unwrap();
    // An option wins over the configuration, and its file takes no name from there.
    ours.migctl(&["assert", "-c", "empty"]).ok();
    let no_name = ours.migctl(&["assert", "-f", other]).refused();
    assert!(no_name.contains("empty"), "{no_name}");
    let mut empty = ours.command(&["assert"]);
    said(empty.env("MIG_PARTED_SELECTED_CONFIG", "")).exits(1);

    ours.migctl(&["apply"]).ok();
    ours.migctl(&["assert"]).ok();
}
