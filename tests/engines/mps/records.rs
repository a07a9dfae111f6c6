//! Records of daemons: of a dead container, lost.

use super::*;

/// Failure: no record names an MPS daemon
#[test]
fn gc_ends_daemon_without_record() {
    let setup = on(Low::Runc);
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.create(&bundle, &id);
    let pid = setup.daemon(&id);
    testkit::faults::check::rewrite(&setup.state(), |_, body| {
        for kind in ["leases", "instances"] {
            body[kind] = json!([]);
        }
    });
    // Its account tells that the container lives.
    setup.migctl(&["gc"]).ok();
    assert!(lives(pid));
    said(&mut setup.bare(&["delete", "--force", &id])).ok();
    // Its cgroup may take a moment to go.
    until("the daemon has ended", || {
        setup.migctl(&["gc"]).ok();
        !lives(pid)
    });
    setup.nothing_is_left();
}
