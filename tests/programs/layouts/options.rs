//! The output of assert and export, and the layout that the configuration names.

use crate::layouts::ours::Ours;
use testkit::prelude::*;

#[test]
fn assertion_names_each_difference() {
    let ours = Ours::on(Machine::new("A30", 2));
    let create = ["--gpu", "1", "--profile", "1g.6gb"];
    ours.machine.sim("create", &create);
    let said = ours.migctl(&["export"]).ok();
    let file = ours.file(&said.stdout);
    let met = ours.assert(&file, &[]).ok();
    assert_eq!(met.stdout, "the machine has layout current\n");
    ours.machine.sim("create", &create);
    let said = ours.assert(&file, &[]).exits(1);
    let difference = "it has 2 × 1g.6gb, and the layout has 1 × 1g.6gb";
    assert_eq!(said.stderr, format!("migctl: GPU 1: {difference}\n"));
    let json = ours.assert(&file, &["-o", "json"]).exits(1).json();
    assert_eq!(json["kind"], "LayoutAssertion");
    assert_eq!(json["applied"], false);
    assert_eq!(json["gpus"][1]["difference"], difference);
    assert_eq!(json["gpus"][0]["difference"], Value::Null);
    let json = ours.migctl(&["-o", "json", "export"]).ok().json();
    assert_eq!(json["version"], "v1");
}

/// Failure: the configuration names no layout, or one that the file lacks
#[test]
fn configuration_names_machines_layout() {
    let ours = Ours::on(Machine::new("A30", 1));
    let file = ours.file(
        "version: v1\nmig-configs:\n  empty:\n  - {devices: all, mig-enabled: true, mig-devices: {}}\n  \
         one:\n  - {devices: all, mig-enabled: true, mig-devices: {1g.6gb: 1}}\n",
    );
    let missing = ours.migctl(&["apply"]).refused();
    let hint = "hint: name one with --config-file, or set layout.file in runmig's configuration";
    ends_with(&missing, hint);

    let path = ours.path("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let section = |config: &str| {
        let text = format!("{text}[layout]\nfile = {file:?}\nconfig = {config:?}\n");
        std::fs::write(&path, text).unwrap();
    };
    section("gone");
    let gone = ours.migctl(&["apply"]).refused();
    let cause = format!("cannot select a configuration of {}: ", file.display());
    has(&gone, &cause);
    has(&gone, "gone");

    section("one");
    ours.migctl(&["assert"]).exits(1);
    // An option wins over the configuration, and its file takes no name from there.
    ours.migctl(&["assert", "-c", "empty"]).ok();
    ours.assert(&file, &[]).refused_for("empty");

    ours.migctl(&["apply"]).ok();
    ours.migctl(&["assert"]).ok();
}
