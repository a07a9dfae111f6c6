//! Nothing is wrong, or the call itself is.

use super::breaking::ids;
use super::{Diagnosis, setup};
use std::time::SystemTime;
use testkit::prelude::*;

/// The machines of scripts/demo, with a container on each and the configuration that it has there.
#[test]
fn nothing_fails_on_machines_of_demo() {
    for (machine, key, value) in testkit::rows! {
        "--gpu A100-80GB --count 1 --mig on", "runmig.dev/slice" => "3g.40gb";
        "--gpu L4 --gpu H100-80GB --mig off --mps", "runmig.dev/share" => "8Gi";
    } {
        let setup = Setup::with(machine, "");
        let id = setup.gives(&[(key, value)]);
        let seen = Diagnosis::of(&setup, &[]);
        seen.has("fail", []);
        assert_eq!(seen.code, Some(0));
        setup.delete(&id);
    }
}

/// Every file of the ledger stays as it is, also without the profiles that the last create kept. No lock is waited for: a
/// test holds each of them.
#[test]
fn changes_nothing_and_waits_for_nothing() {
    let setup = setup();
    setup.make("web", "1g.10gb");
    fs::remove_file(setup.state().join("geometry")).unwrap();
    let mut locks = names_in(&setup.state());
    locks.retain(|name| name.ends_with(".lock"));
    let hold = |name: &String| {
        let file = File::open(setup.state().join(name)).unwrap();
        file.lock().unwrap();
        file
    };
    let held: Vec<File> = locks.iter().map(hold).collect();
    assert!(held.len() > 2, "{held:?}");
    let before = tree(&setup.state());
    let seen = Diagnosis::of(&setup, &[]);
    seen.has("fail", []);
    assert_eq!(tree(&setup.state()), before);
    drop(held);
    setup.delete("web");
}

/// Returns every file below a folder with its time and bytes.
fn tree(folder: &Path) -> Vec<(PathBuf, SystemTime, Vec<u8>)> {
    let look = |path: PathBuf| {
        let changed = fs::symlink_metadata(&path).unwrap().modified().unwrap();
        let bytes = fs::read(&path).unwrap_or_default();
        (path, changed, bytes)
    };
    all_below(folder).into_iter().map(look).collect()
}

/// An absent check would look like one that is well. Neither does one vanish with what it looks at. Only what this machine
/// lacks is told, and that fails nothing.
#[test]
fn every_check_has_a_finding() {
    let setup = setup();
    let named = names(&setup);
    let checks = named.iter().filter(|name| name.contains('.'));
    let checks: BTreeSet<String> = checks.cloned().collect();
    let seen = Diagnosis::of(&setup, &[]);
    assert_eq!(seen.all_ids(), checks);
    seen.has("fail", []);
    assert_eq!(seen.code, Some(0));
    assert_eq!(setup.machine.instances(), Vec::new());
    assert!(!setup.state().exists(), "it made a state directory");
    fs::remove_file(setup.machine.library()).unwrap();
    assert_eq!(Diagnosis::of(&setup, &[]).all_ids(), checks);
    fs::write(setup.config(), "nonsense = 1").unwrap();
    let seen = Diagnosis::of(&setup, &[]);
    assert_eq!(seen.all_ids(), checks);
    seen.has("fail", ["configuration.files"]);
}

/// Returns the names of checks and groups, by the error of a wrong one.
fn names(setup: &Setup) -> Vec<String> {
    let said = setup.migctl(&["doctor", "--only=state.nonsense"]).exits(2);
    let line = said.stderr.split("[possible values: ").nth(1);
    let line = line.and_then(|rest| rest.split(']').next());
    let names = line.unwrap_or_else(|| panic!("no names: {}", said.stderr));
    names.split(", ").map(str::to_owned).collect()
}

#[test]
fn chooses_groups_and_checks() {
    let setup = setup();
    for (arguments, chosen) in testkit::rows! {
        &["--only=mig,state.space"][..] => ids(["mig.foreign", "mig.mode", "mig.records", "state.space"]);
        &["--only=mig,host", "--skip=host,mig.mode"] => ids(["mig.foreign", "mig.records"]);
    } {
        assert_eq!(Diagnosis::of(&setup, arguments).all_ids(), chosen);
    }
}

/// The order is that of `problems_come_first_and_quiet_shows_them_alone` in crates/lease/src/finding.rs.
#[test]
fn table_begins_with_problems() {
    let setup = setup();
    let quiet = ["doctor", "--only=driver,host.boot", "--quiet"];
    assert_eq!(setup.tells(&quiet), "");
    setup.fault("nvmlInit_v2", "DRIVER_NOT_LOADED");
    let said = setup.migctl(&quiet[..2]).exits(1);
    begins_with(&said.stdout, "fail  driver.library ");
    has(&said.stdout, "      repair: load the NVIDIA kernel module");
    let summary = "1 failed, 0 to look at, 1 well, 2 skipped\n";
    ends_with(&said.stdout, summary);
    begins_with(&said.stderr, "migctl: 1 check fails; hint: ");
    let quiet = setup.migctl(&quiet).exits(1).stdout;
    begins_with(&quiet, "fail  driver.library ");
    assert_eq!(quiet.lines().count(), 3, "{quiet}");
    ends_with(&quiet, summary);
}

/// A unit waits for the driver.
#[test]
fn waits_until_nothing_fails() {
    let setup = setup();
    let fault = "--call nvmlInit_v2 --returns DRIVER_NOT_LOADED --to 2";
    setup.sim("fault", &fault.split(' ').collect::<Vec<_>>());
    let seen = Diagnosis::of(&setup, &["--only=driver", "--wait=600s"]);
    assert_eq!(seen.code, Some(0), "{:?}", seen.items);
}
