//! Records of seats: damaged, of another boot, and lost.

use super::*;
use std::fs;
use std::path::PathBuf;
use testkit::process::lives;

fn files(setup: &Setup, kind: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(setup.state().join(kind)).unwrap();
    all.map(|entry| entry.unwrap().path()).collect()
}

/// Returns the one record whose name has a word.
#[track_caller]
fn record(setup: &Setup, kind: &str, word: &str) -> PathBuf {
    let mut all = files(setup, kind);
    all.retain(|file| file.to_str().unwrap().contains(word));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn damage(file: &PathBuf) {
    fs::write(file, "{").unwrap();
}

fn pid(setup: &Setup, id: &str) -> Option<i32> {
    let pid = lease(setup, id)["daemon"]["pid"].as_i64()?;
    i32::try_from(pid).ok()
}

/// Neither memory nor a daemon nor the slice is lost with a record, and all go with the container.
#[test]
fn damaged_records_keep_seat() {
    for (level, kind, word) in [
        ("none", "leases", ".share."),
        ("none", "instances", ".seats"),
        ("mps", "leases", ".share."),
        ("mps", "instances", ".mps."),
        ("mps", "instances", ".seats"),
    ] {
        let Some(setup) = on(Low::Runc, level) else {
            return;
        };
        let id = create(&setup, "7g.80gb", "3/4");
        let (slice, daemon) = (setup.machine.the_instance(), pid(&setup, &id));
        damage(&record(&setup, kind, word));
        // The memory of the seat and the place of the slice stay taken.
        refused(&setup, &[(SLICE, "7g.80gb"), (SHARE, "1/2")]);
        refused(&setup, &[(SLICE, "1g.10gb")]);
        let _ = setup.migctl(&["gc"]);
        assert_eq!(setup.machine.the_instance(), slice, "{level} {word}");
        assert!(daemon.is_none_or(lives), "{level} {word}");
        delete(&setup, &id);
        assert!(!daemon.is_some_and(lives), "{level} {word}");
        setup.migctl(&["gc"]).ok();
        setup.nothing_is_left();
    }
}

/// The seat of another stays when one with a damaged record ends.
#[test]
fn damaged_seat_ends_alone() {
    for (level, kind, word) in [("none", "leases", ".share."), ("mps", "instances", ".mps.")] {
        let Some(setup) = on(Low::Runc, level) else {
            return;
        };
        let first = create(&setup, "3g.40gb", "1/2");
        damage(&record(&setup, kind, word));
        let second = create(&setup, "3g.40gb", "1/4");
        let list = setup.migctl(&["list", "-o", "json"]).exits(1).json();
        let slice = list["items"][0]["migUUID"].as_str().unwrap().to_owned();
        delete(&setup, &first);
        assert!(setup.machine.instances().iter().any(|i| i.uuid == slice));
        assert_eq!(lease(&setup, &second)["state"], "ready");
        delete(&setup, &second);
        setup.nothing_is_left();
    }
}

#[test]
fn earlier_boot_takes_seats_along() {
    for level in ["none", "mps"] {
        let Some(setup) = on(Low::Runc, level) else {
            return;
        };
        let ids = ["1/2", "1/4"].map(|size| create(&setup, "3g.40gb", size));
        setup.machine.sim("reboot", &[]);
        setup.migctl(&["gc"]).ok();
        assert_eq!(files(&setup, "instances"), Vec::<PathBuf>::new());
        setup.nothing_is_left();
        ids.iter().for_each(|id| delete(&setup, id));
        // A container that its engine deletes comes before any collector.
        setup.machine.sim("mig", &["--gpu", "0", "on"]);
        let ids = ["1/2", "1/4"].map(|size| create(&setup, "3g.40gb", size));
        setup.machine.sim("reboot", &[]);
        ids.iter().for_each(|id| delete(&setup, id));
        setup.migctl(&["gc"]).ok();
        assert_eq!(files(&setup, "instances"), Vec::<PathBuf>::new());
        setup.nothing_is_left();
    }
}

/// A slice on record without a seat is one that a kill left.
#[test]
fn gc_destroys_slice_without_seats() {
    let Some(setup) = on(Low::Runc, "mps") else {
        return;
    };
    let id = create(&setup, "3g.40gb", "1/2");
    let parent = record(&setup, "instances", ".seats");
    let copy = fs::read(&parent).unwrap();
    // As after a kill between the end of the daemon and that of its slice.
    delete(&setup, &id);
    setup.machine.is_empty();
    fs::write(&parent, copy).unwrap();
    let told = setup.migctl(&["gc"]).ok().stdout;
    assert!(told.contains("it was being released"), "{told}");
    assert_eq!(files(&setup, "instances"), Vec::<PathBuf>::new());
    setup.nothing_is_left();
}

/// The hook ends the daemon of a lost ledger. The slice stays, since others may have seats in it, and the error names
/// the command that frees it.
#[test]
fn hook_of_lost_ledger_ends_daemon() {
    let Some(setup) = on(Low::Runc, "mps") else {
        return;
    };
    let id = create(&setup, "3g.40gb", "1/2");
    let daemon = pid(&setup, &id).unwrap();
    let slice = setup.machine.the_instance();
    fs::remove_dir_all(setup.state()).unwrap();
    let said = setup.runmig(&["delete", "--force", &id]);
    assert!(!lives(daemon));
    let gpu = setup.machine.gpu_uuid(0);
    let (gi, log) = (
        slice.gi,
        fs::read_to_string(setup.state().join("runmig.log")).unwrap(),
    );
    let told = format!(
        "of the seat: it is not on record, and containers may have seats in it; hint: once no container uses it, \
         nvidia-smi mig -i {gpu} -gi {gi} -ci 0 -dci && nvidia-smi mig -i {gpu} -gi {gi} -dgi"
    );
    assert!(log.contains(&told), "{log} {said:?}");
    assert_eq!(setup.machine.instances(), [slice]);
    assert_eq!(setup.daemons(), Vec::<String>::new());
}
