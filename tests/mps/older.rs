//! A share at `mps` beside an older runmig, which does not know the kind of its record. Here another name of the record
//! stands for that: every version leaves a kind alone that it does not know.

use super::*;
use std::fs;
use std::path::PathBuf;
use support::process::{in_cgroup, lives};
use support::sharing::refused;

/// Returns the record of the daemon.
fn record(setup: &Setup) -> PathBuf {
    let entries = fs::read_dir(setup.state().join("instances")).unwrap();
    let all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

#[test]
fn older_version_leaves_daemon_alone() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    let (daemon, known) = (daemon_pid(&setup, &id), record(&setup));
    let name = known.file_name().unwrap().to_str().unwrap();
    let unknown = known.with_file_name(name.replace(".mps.", ".later."));
    assert_ne!(known, unknown);
    fs::rename(&known, &unknown).unwrap();
    let newer = "is a lease of a newer runmig; hint: release it with the runmig that wrote it";
    let is_left_alone = || {
        let said = setup.migctl(&["gc"]).exits(1);
        assert!(said.stdout.contains(newer), "{said:?}");
        assert!(lives(daemon) && unknown.exists());
    };
    is_left_alone();
    // Its memory is not given twice.
    for asks in [("runmig.dev/gpu", "1"), (SHARE, "8Gi")] {
        let line = refused(&setup, &[asks]);
        assert!(line.contains("a record in the ledger holds it"), "{line}");
    }
    // Neither the end of the container nor its hook ends the daemon.
    let deleted = setup.runmig(&["delete", "--force", &id]).ok();
    assert!(deleted.stderr.contains(newer), "{deleted:?}");
    assert!(in_cgroup(&bundle.cgroup()).is_empty());
    is_left_alone();
    // The version that knows it finds all of it.
    fs::rename(&unknown, &known).unwrap();
    setup.migctl(&["gc"]).ok();
    assert!(!lives(daemon));
    setup.nothing_is_left();
}
