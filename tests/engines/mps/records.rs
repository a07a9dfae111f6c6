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

#[test]
fn gc_removes_old_empty_cgroups() {
    let setup = on(Low::Runc);
    // A hook that does not see a hierarchy leaves the cgroup there.
    let (id, bundle) = (unique(), asking(&setup, "4Gi"));
    setup.create(&bundle, &id);
    let pid = setup.daemon(&id);
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let name = cgroups.lines().next().unwrap().rsplit('/').next().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let points = mounts.lines().filter(|line| line.contains(" cgroup"));
    let mut places = points.map(|line| Path::new(line.split(' ').nth(1).unwrap()).join(name));
    let place = places.find(|place| place.is_dir()).unwrap();
    let left = place.with_file_name(format!("runmig-mps-{}", unique()));
    fs::create_dir(&left).unwrap();
    let touch = |place: &Path| {
        let mut touch = Command::new("touch");
        said(touch.args(["-d", "1 hour ago"]).arg(place)).ok();
    };
    setup.migctl(&["gc"]).ok();
    assert!(left.is_dir(), "it is young");
    touch(&left);
    touch(&place);
    setup.migctl(&["gc"]).ok();
    assert!(!left.exists());
    assert!(place.is_dir() && lives(pid));
    setup.ends(&[&id]);
}
