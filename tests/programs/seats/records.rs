//! Records of seats: damaged, of another boot, and lost.

use super::*;

fn files(setup: &Setup, kind: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(setup.state().join(kind)).unwrap();
    all.map(|entry| entry.unwrap().path()).collect()
}

/// Returns the one record of a kind.
#[track_caller]
fn record(setup: &Setup, kind: &str) -> PathBuf {
    let mut all = files(setup, kind);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn damage(file: &PathBuf) {
    fs::write(file, "{").unwrap();
}

fn pid(setup: &Setup, id: &str) -> Option<i32> {
    let pid = setup.lease(id)["daemon"]["pid"].as_i64()?;
    i32::try_from(pid).ok()
}

/// The seat of another stays when one with a damaged record ends.
#[test]
fn damaged_seat_ends_alone() {
    for (level, kind) in [("none", "leases"), ("mps", "leases"), ("mps", "instances")] {
        let setup = on(Low::Runc, level);
        let first = create(&setup, "3g.40gb", "1/2");
        damage(&record(&setup, kind));
        let second = create(&setup, "3g.40gb", "1/4");
        let list = setup.migctl(&["list", "-o", "json"]).exits(1).json();
        let slice = list["items"][0]["migUUID"].as_str().unwrap().to_owned();
        setup.delete(&first);
        assert!(setup.machine.instances().iter().any(|i| i.uuid == slice));
        assert_eq!(setup.lease(&second)["state"], "ready");
        setup.delete(&second);
        setup.nothing_is_left();
    }
}

/// A slice on record without a seat is one that a kill left.
/// Failure: a kill after the end of a seat's lease, before that of the record of its slice
#[test]
fn gc_destroys_slice_without_seats() {
    let setup = on(Low::Runc, "mps");
    let id = create(&setup, "3g.40gb", "1/2");
    let slice = record(&setup, "instances");
    let copy = fs::read(&slice).unwrap();
    // As after a kill between the two.
    setup.delete(&id);
    setup.machine.is_empty();
    fs::write(&slice, copy).unwrap();
    let told = setup.migctl(&["gc"]).ok().stdout;
    has(&told, "it was being released");
    assert_eq!(files(&setup, "instances"), Vec::<PathBuf>::new());
    setup.nothing_is_left();
}

/// The hook ends the daemon of a lost ledger. The slice stays, since others may have seats in it, and the error names
/// the command that frees it.
/// Failure: the ledger of a seat at `mps` is lost
#[test]
fn hook_of_lost_ledger_ends_daemon() {
    let setup = on(Low::Runc, "mps");
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
        "the slice of the seat is not on record, and containers may have seats in it; hint: once no container uses it, \
         nvidia-smi mig -i {gpu} -gi {gi} -ci 0 -dci && nvidia-smi mig -i {gpu} -gi {gi} -dgi"
    );
    assert!(log.contains(&told), "{log} {said:?}");
    assert_eq!(setup.machine.instances(), [slice]);
    assert_eq!(setup.daemons(), Vec::<String>::new());
}
