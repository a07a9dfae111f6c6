//! Nothing is wrong, or the call itself is.

use super::{Diagnosis, setup};
use std::time::SystemTime;
use testkit::prelude::*;

/// The machines of scripts/demo, with a container on each and the configuration that it has there.
#[test]
fn nothing_fails_on_machines_of_demo() {
    let slices = ["--gpu", "A100-80GB", "--count", "1", "--mig", "on"];
    let shares = ["--gpu", "L4", "--gpu", "H100-80GB", "--mig", "off", "--mps"];
    for (machine, key, value) in [
        (&slices[..], "runmig.dev/slice", "3g.40gb"),
        (&shares[..], "runmig.dev/share", "8Gi"),
    ] {
        let setup = Setup::on(Low::Runc, Machine::with(machine));
        let bundle = setup.bundle("exec sleep 1000");
        bundle.annotate(key, value);
        setup.create(&bundle, "web");
        let seen = Diagnosis::of(&setup, &[]);
        seen.has("fail", []);
        assert_eq!(seen.code, Some(0));
        setup.delete("web");
    }
}

/// Every file of the ledger stays as it is, also without the profiles that the last create kept. No lock is waited for: a
/// test holds each of them.
#[test]
fn changes_nothing_and_waits_for_nothing() {
    let setup = setup();
    let bundle = setup.asking("1g.10gb", "true");
    setup.create(&bundle, "web");
    fs::remove_file(setup.state().join("geometry")).unwrap();
    let locks = fs::read_dir(setup.state()).unwrap().flatten();
    let locks = locks.map(|entry| entry.path());
    let locks = locks.filter(|path| path.extension().is_some_and(|e| e == "lock"));
    let held: Vec<fs::File> = locks
        .map(|path| {
            let file = fs::File::open(path).unwrap();
            fs2::FileExt::lock_exclusive(&file).unwrap();
            file
        })
        .collect();
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
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let changed = entry.metadata().unwrap().modified().unwrap();
        let is_folder = path.is_dir();
        let bytes = fs::read(&path).unwrap_or_default();
        all.push((path.clone(), changed, bytes));
        if is_folder {
            all.extend(tree(&path));
        }
    }
    all.sort();
    all
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
    assert_eq!(seen.ids("fail"), ["configuration.files".to_owned()].into());
}

/// Returns the names of checks and groups, by the error of a wrong one.
fn names(setup: &Setup) -> Vec<String> {
    let said = setup.migctl(&["doctor", "--only", "state.nonsense"]);
    assert_eq!(said.status.code(), Some(2));
    let line = said.stderr.split("[possible values: ").nth(1);
    let line = line.and_then(|rest| rest.split(']').next());
    let names = line.unwrap_or_else(|| panic!("no names: {}", said.stderr));
    names.split(", ").map(str::to_owned).collect()
}

#[test]
fn chooses_groups_and_checks() {
    let setup = setup();
    let ids = |arguments: &[&str]| Diagnosis::of(&setup, arguments).all_ids();
    let of = |ids: &[&str]| -> BTreeSet<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
    assert_eq!(
        ids(&["--only=mig,state.space"]),
        of(&["mig.foreign", "mig.mode", "mig.records", "state.space"])
    );
    assert_eq!(
        ids(&["--only=mig,host", "--skip=host,mig.mode"]),
        of(&["mig.foreign", "mig.records"])
    );
}

/// Problems come first, with their repairs; a summary ends the list; `--quiet` leaves out the rest.
#[test]
fn table_begins_with_problems() {
    let setup = setup();
    let quiet = setup.migctl(&["doctor", "--only=driver,host.boot", "--quiet"]);
    assert_eq!((quiet.ok().stdout.as_str(), ""), ("", ""));
    setup.fault("nvmlInit_v2", "DRIVER_NOT_LOADED");
    let said = setup.migctl(&["doctor", "--only=host.boot,driver"]);
    assert_eq!(said.status.code(), Some(1));
    let lines: Vec<&str> = said.stdout.lines().collect();
    for (line, begin) in lines.iter().zip([
        "fail  driver.library ",
        "      repair: load the NVIDIA kernel module",
        "ok    host.boot ",
        "skip  driver.gpus ",
        "skip  driver.missing ",
        "1 failed, 0 to look at, 1 well, 2 skipped",
    ]) {
        assert!(line.starts_with(begin), "{}", said.stdout);
    }
    let words = "migctl: 1 check fails; hint: ";
    assert!(said.stderr.starts_with(words), "{}", said.stderr);
    let quiet = setup.migctl(&["doctor", "--only=host.boot,driver", "--quiet"]);
    let rest = [lines[0], lines[1], lines[5]];
    assert_eq!(quiet.stdout.lines().collect::<Vec<_>>(), rest);
}

/// A unit waits for the driver.
#[test]
fn waits_until_nothing_fails() {
    let setup = setup();
    let call = [
        "--call",
        "nvmlInit_v2",
        "--returns",
        "DRIVER_NOT_LOADED",
        "--to",
        "2",
    ];
    setup.sim("fault", &call);
    let seen = Diagnosis::of(&setup, &["--only=driver", "--wait=600s"]);
    assert_eq!(seen.code, Some(0), "{:?}", seen.items);
}
