//! A limit that others change, as the operator sees it.

use super::*;
use nvml_sim::engine::UNLIMITED;
use testkit::has;

/// Changes the limit of the only limited cgroup, as root of the host can.
fn change(setup: &Setup, mib: Option<u64>) {
    setup.machine.change(|machine| {
        let mut limit = machine.memory_limits[0].clone();
        limit.hard = mib.map_or(UNLIMITED, |mib| mib * MIB);
        machine.set_memory_limit(limit);
    });
}

fn sets_raised_limit_back(keeper: Keeper) {
    let setup = on(Low::Runc, keeper);
    let (id, bundle, mut client) = client(&setup, "4Gi");
    let limited = vec![(format!("/{}", bundle.cgroup()), 4096 * MIB)];
    assert!(setup.lease(&id)["limitChanged"].is_null());
    for (changed, shown, words) in [(Some(6144), 6, "6Gi"), (None, 0, "none")] {
        change(&setup, changed);
        assert_eq!(setup.lease(&id)["limitChanged"], shown);
        let list = setup.migctl(&["list"]).ok();
        has(&list.stdout, "ready, limit changed");
        let told = format!("the memory limit of container {id} was changed to {words}");
        has(&list.stderr, &told);
        has(&setup.tells(&["gc", "--dry-run"]), "would be set back");
        assert_ne!(limits(&setup), limited);
        let said = setup.tells(&["gc"]);
        let told = format!("was changed to {words}, and is set back to its share");
        has(&said, &told);
        assert_eq!(limits(&setup), limited);
        assert!(setup.lease(&id)["limitChanged"].is_null());
    }
    // A lower limit keeps the promise.
    change(&setup, Some(3072));
    assert_eq!(setup.lease(&id)["limitChanged"], 3);
    setup.migctl(&["gc"]).ok();
    assert_eq!(setup.lease(&id)["limitChanged"], 3);
    assert_eq!(client.say("launch 1"), "ok");
    client.end();
    setup.nothing_is_left();
}

testkit::tests! {
    /// Failure: root of the host changes the limit of a running container at `driver`
    gc_sets_raised_limit_back: sets_raised_limit_back(Keeper::Misc);
    gc_sets_raised_dmem_limit_back: sets_raised_limit_back(Keeper::Dmem);
}

/// The driver does not tell, so nothing is known.
#[test]
fn list_goes_on_without_answer() {
    let setup = on(Low::Runc, Keeper::Misc);
    let (id, _, client) = client(&setup, "4Gi");
    setup.fault("nvmlDeviceGetMemoryLimits_v1", "999");
    let list = setup.migctl(&["list"]).ok();
    let told = format!("cannot read the memory limit of container {id}");
    has(&list.stderr, &told);
    let gc = setup.migctl(&["gc"]).exits(1);
    has(&gc.stdout, "(NVML 999)");
    setup.sim("fault", &["--clear"]);
    client.end();
    setup.nothing_is_left();
}

/// The container's first process may move below, as systemd does, and the limit stays on the container's cgroup.
#[test]
fn follows_no_process_into_other_cgroups() {
    let setup = on(Low::Runc, Keeper::Misc);
    let (id, bundle, client) = client(&setup, "4Gi");
    let limited = vec![(format!("/{}", bundle.cgroup()), 4096 * MIB)];
    let own = std::path::Path::new(cgroup2::ROOT).join(bundle.cgroup());
    let init = setup.lease(&id)["initPid"].to_string();
    let below = own.join("init.scope");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("cgroup.procs"), &init).unwrap();
    assert!(setup.lease(&id)["limitChanged"].is_null());
    setup.migctl(&["gc"]).ok();
    assert_eq!(limits(&setup), limited);

    // Another cgroup is not the container's: gc names it and sets no limit there.
    let away = own.with_file_name(format!("{}-away", bundle.cgroup()));
    fs::create_dir(&away).unwrap();
    fs::write(away.join("cgroup.procs"), &init).unwrap();
    setup.migctl(&["list"]).ok().warns("has left cgroup");
    let gc = setup.migctl(&["gc"]).exits(1);
    has(&gc.stdout, "has left cgroup");
    assert_eq!(limits(&setup), limited);
    client.end();
    until("the cgroup is empty", || fs::remove_dir(&away).is_ok());
    setup.migctl(&["gc"]).ok();
    setup.nothing_is_left();
}

/// The cgroup is gone and another one has its path: that one never had the limit, and gets none.
#[test]
fn takes_no_cgroup_of_same_path() {
    let setup = on(Low::Runc, Keeper::Misc);
    let (id, bundle, client) = client(&setup, "4Gi");
    let own = std::path::Path::new(cgroup2::ROOT).join(bundle.cgroup());
    let init = setup.lease(&id)["initPid"].to_string();
    let away = own.with_file_name(format!("{}-away", bundle.cgroup()));
    fs::create_dir(&away).unwrap();
    fs::write(away.join("cgroup.procs"), &init).unwrap();
    until("the cgroup is empty", || fs::remove_dir(&own).is_ok());
    fs::create_dir(&own).unwrap();
    fs::write(own.join("cgroup.procs"), &init).unwrap();
    let gone = format!("cgroup {} is gone", own.display());
    setup.migctl(&["list"]).ok().warns(&gone);
    let gc = setup.migctl(&["gc"]).exits(1);
    gc.says(&gone);
    assert_eq!(limits(&setup), []);
    client.end();
    until("the cgroup is empty", || fs::remove_dir(&away).is_ok());
    setup.migctl(&["gc"]).ok();
    setup.nothing_is_left();
}
