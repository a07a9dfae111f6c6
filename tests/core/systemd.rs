//! The units that are shipped, as systemd reads them.

use testkit::prelude::*;

const UNITS: [&str; 9] = [
    "runmig-gc.service",
    "runmig-gc.timer",
    "runmig-textfile.service",
    "runmig-textfile.timer",
    "runmig-metrics.socket",
    "runmig-metrics@.service",
    "runmig-dcgm.path",
    "runmig-dcgm.service",
    "runmig-layout.service",
];

fn shipped(unit: &str) -> String {
    fs::read_to_string(repository().join("systemd").join(unit)).unwrap()
}

/// systemd writes a line about every condition that is not met, and about every start, at level info.
#[test]
fn gc_is_quiet_without_leases() {
    let unit = shipped("runmig-gc.service");
    lacks(&unit, "\nCondition");
    for line in ["\nSyslogLevel=notice\n", "\nLogLevelMax=notice\n"] {
        has(&unit, line);
    }
    let dir = tempfile::tempdir().unwrap();
    let (state, config) = (dir.path().join("state"), dir.path().join("config.toml"));
    let data = dir.path().join("data");
    let text = format!("state_dir = {state:?}\ndata_dir = {data:?}\n");
    fs::write(&config, text).unwrap();
    let is_quiet = || {
        let mut gc = Command::new(env!("CARGO_BIN_EXE_migctl"));
        let said = said(gc.arg("--config").arg(&config).arg("gc")).ok();
        assert_eq!(said.stdout + &said.stderr, "");
    };
    is_quiet();
    assert!(!state.exists());
    fs::create_dir_all(state.join("operations")).unwrap();
    is_quiet();
}

/// Unknown keys are only told, so nothing may be.
#[test]
fn systemd_accepts_the_units() {
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        return skip("systemd-analyze is not there: apt-get install systemd");
    }
    let dir = tempfile::tempdir().unwrap();
    let migctl = dir.path().join("migctl");
    script(&migctl, "");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for unit in UNITS {
        let text = shipped(unit);
        // Whether the program is there is asked as well.
        let here = text.replace("/usr/local/bin/migctl", migctl.to_str().unwrap());
        let unit = dir.path().join(unit);
        fs::write(&unit, here).unwrap();
        verify.arg(unit);
    }
    let told = said(&mut verify).ok();
    assert_eq!(told.stdout + &told.stderr, "");
}

/// The units that an administrator enables need few rights. 10 is the worst exposure.
#[test]
fn optional_units_are_confined() {
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        return skip("systemd-analyze is not there: apt-get install systemd");
    }
    let units = repository().join("systemd");
    for unit in ["textfile", "metrics@", "dcgm"].map(|unit| format!("runmig-{unit}.service")) {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager", "--threshold=30"]);
        said(analyze.arg(units.join(&unit))).ok();
    }
}
