//! Nothing is wrong, or the call itself is.

use super::{Diagnosis, setup};
use std::collections::BTreeSet;

/// Only what this machine lacks is told, and that fails nothing.
#[test]
fn nothing_fails_on_simulated_machine() {
    let Some(setup) = setup() else { return };
    let seen = Diagnosis::of(&setup, &[]);
    assert_eq!(seen.ids("fail"), BTreeSet::new(), "{:?}", seen.items);
    assert_eq!(seen.code, Some(0));
    assert_eq!(setup.machine.instances(), Vec::new());
    assert!(!setup.state().exists(), "it made a state directory");
    let ids: Vec<&str> = seen
        .items
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    for id in [
        "driver.library",
        "nodes.nvidiactl",
        "nodes.config",
        "nodes.gpu",
        "mig.mode",
        "machine.cgroups",
    ] {
        assert!(ids.contains(&id), "{id} is missing in {ids:?}");
    }
}

#[test]
fn chooses_groups() {
    let Some(setup) = setup() else { return };
    let groups = |arguments: &[&str]| {
        let seen = Diagnosis::of(&setup, arguments);
        let groups = seen
            .items
            .iter()
            .map(|item| item["group"].as_str().unwrap().to_owned());
        groups.collect::<BTreeSet<String>>()
    };
    assert_eq!(
        groups(&["--only", "clock,mig"]),
        ["clock", "mig"].map(str::to_owned).into()
    );
    assert_eq!(
        groups(&["--only=clock,mig", "--skip=mig"]),
        ["clock"].map(str::to_owned).into()
    );
    let said = setup.migctl(&["doctor", "--only", "nonsense"]);
    assert_eq!(said.status.code(), Some(2));
}

#[test]
fn table_shows_repairs() {
    let Some(setup) = setup() else { return };
    setup.machine.sim(
        "fault",
        &["--call", "nvmlInit_v2", "--returns", "DRIVER_NOT_LOADED"],
    );
    let said = setup.migctl(&["doctor", "--only=driver"]);
    assert_eq!(said.status.code(), Some(1));
    let mut lines = said
        .stdout
        .lines()
        .skip_while(|line| !line.starts_with("fail"));
    assert!(
        lines.next().unwrap().starts_with("fail  driver.library"),
        "{}",
        said.stdout
    );
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("      repair: load the NVIDIA kernel module"),
        "{}",
        said.stdout
    );
    assert!(
        said.stderr
            .contains("cannot allocate on this machine: 1 check fails"),
        "{}",
        said.stderr
    );
}

/// A unit waits for the driver.
#[test]
fn waits_until_nothing_fails() {
    let Some(setup) = setup() else { return };
    let fault = [
        "--call",
        "nvmlInit_v2",
        "--returns",
        "DRIVER_NOT_LOADED",
        "--to",
        "2",
    ];
    setup.machine.sim("fault", &fault);
    let seen = Diagnosis::of(&setup, &["--only=driver", "--wait=600s"]);
    assert_eq!(seen.code, Some(0), "{:?}", seen.items);
}
