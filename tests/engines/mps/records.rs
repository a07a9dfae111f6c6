//! Records of daemons: damaged, of a dead container, lost.

use super::*;
use std::fs;
use testkit::process::{in_cgroup, kill, lives};

/// Returns the one file of a kind of records.
fn record(setup: &Setup, kind: &str) -> std::path::PathBuf {
    let mut all = fs::read_dir(setup.state().join(kind)).unwrap();
    let one = all.next().unwrap().unwrap().path();
    assert!(all.next().is_none());
    one
}

#[test]
fn gc_ends_daemon_of_dead_container() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    let pid = daemon_pid(&setup, &id);
    in_cgroup(&bundle.cgroup()).into_iter().for_each(kill);
    setup.migctl(&["gc"]).ok();
    assert!(!lives(pid));
    setup.nothing_is_left();
}

#[test]
fn damaged_records_keep_memory_and_daemon() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    for kind in ["leases", "instances"] {
        let (id, bundle) = (unique(), asking(&setup, "12Gi"));
        setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
        let pid = daemon_pid(&setup, &id);
        let file = record(&setup, kind);
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        // Its memory stays booked: 12 of 22 GiB.
        let other = asking(&setup, "12Gi");
        let line = setup
            .runmig(&["create", "-b", other.as_str(), &unique()])
            .refused();
        assert!(line.contains("is free beside"), "{line}");
        let small = asking(&setup, "1Gi");
        let beside = unique();
        setup
            .runmig(&["create", "-b", small.as_str(), &beside])
            .ok();
        setup.runmig(&["delete", "--force", &beside]).ok();
        // A collector cannot tell whether the container lives.
        let _ = setup.migctl(&["gc"]);
        assert!(lives(pid), "{kind}");
        setup.runmig(&["delete", "--force", &id]).ok();
        assert!(!lives(pid), "{kind}");
        setup.nothing_is_left();
    }
}

#[test]
fn hook_ends_daemon_of_lost_ledger() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    let pid = daemon_pid(&setup, &id);
    fs::remove_dir_all(setup.state()).unwrap();
    setup.runmig(&["delete", "--force", &id]).ok();
    assert!(!lives(pid));
    setup.nothing_is_left();
}

#[test]
fn earlier_boot_takes_daemon_along() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    setup.machine.sim("reboot", &[]);
    setup.migctl(&["gc"]).ok();
    setup.nothing_is_left();
    // A container that its engine starts again comes before any collector.
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    setup.machine.sim("reboot", &[]);
    setup.runmig(&["delete", "--force", &id]).ok();
    setup.nothing_is_left();
}

#[test]
fn gc_keeps_daemon_of_lost_lease() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    let pid = daemon_pid(&setup, &id);
    fs::remove_file(record(&setup, "leases")).unwrap();
    let said = setup.migctl(&["gc"]).ok().stdout;
    assert!(said.contains("its lease is lost"), "{said}");
    assert!(lives(pid));
    let instance = record(&setup, "instances");
    let instance = instance.file_name().unwrap().to_str().unwrap()[..32].to_owned();
    setup.runmig(&["delete", "--force", &id]).ok();
    setup.migctl(&["release", &instance]).ok();
    assert!(!lives(pid));
    setup.nothing_is_left();
}

#[test]
fn gc_ends_daemon_without_record() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    let pid = daemon_pid(&setup, &id);
    for kind in ["leases", "instances"] {
        fs::remove_file(record(&setup, kind)).unwrap();
    }
    setup.migctl(&["gc"]).ok();
    assert!(!lives(pid));
    setup.runmig(&["delete", "--force", &id]).ok();
    setup.nothing_is_left();
}

#[test]
fn gc_removes_old_empty_cgroups() {
    let Some(setup) = on(Low::Runc) else {
        return;
    };
    // A hook that does not see a hierarchy leaves the cgroup there.
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    let pid = daemon_pid(&setup, &id);
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let name = cgroups.lines().next().unwrap().rsplit('/').next().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let points = mounts.lines().filter(|line| line.contains(" cgroup"));
    let mut places =
        points.map(|line| std::path::Path::new(line.split(' ').nth(1).unwrap()).join(name));
    let place = places.find(|place| place.is_dir()).unwrap();
    let left = place.with_file_name(format!("runmig-mps-{}", unique()));
    fs::create_dir(&left).unwrap();
    let touch = |place: &std::path::Path, time: &str| {
        let touched = std::process::Command::new("touch")
            .args(["-d", time])
            .arg(place)
            .status();
        assert!(touched.unwrap().success());
    };
    setup.migctl(&["gc"]).ok();
    assert!(left.is_dir(), "it is young");
    touch(&left, "1 hour ago");
    touch(&place, "1 hour ago");
    setup.migctl(&["gc"]).ok();
    assert!(!left.exists());
    assert!(place.is_dir() && lives(pid));
    setup.runmig(&["delete", "--force", &id]).ok();
    setup.nothing_is_left();
}
