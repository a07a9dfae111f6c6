//! Records of seats of another boot, and lost.

use super::*;

/// The hook ends the daemon of a lost ledger. The slice stays, since others may have seats in it, and the error names
/// the command that frees it.
/// Failure: the ledger of a seat at `mps` is lost
#[test]
fn hook_of_lost_ledger_ends_daemon() {
    let setup = on(Low::Runc, "mps");
    let id = create(&setup, "3g.40gb", "1/2");
    let daemon = setup.daemon(&id);
    let slice = setup.machine.the_instance();
    fs::remove_dir_all(setup.state()).unwrap();
    let said = setup.runmig(&["delete", "--force", &id]);
    assert!(!lives(daemon));
    let log = fs::read_to_string(setup.state().join("runmig.log")).unwrap();
    let (gi, gpu) = (slice.gi, &slice.gpu_uuid);
    let told = format!(
        "the slice of the seat is not on record, and containers may have seats in it; hint: once no container uses it, \
         nvidia-smi mig -i {gpu} -gi {gi} -ci 0 -dci && nvidia-smi mig -i {gpu} -gi {gi} -dgi"
    );
    assert!(log.contains(&told), "{log} {said:?}");
    assert_eq!(setup.machine.instances(), [slice]);
    assert_eq!(setup.daemons(), Vec::<String>::new());
}
