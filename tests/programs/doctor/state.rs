//! The state directory and the ledger.

use super::breaking::{breaks, breaks_inside};
use super::{Diagnosis, setup};
use fs2::FileExt;
use std::cell::RefCell;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use testkit::{Setup, said};

fn ago(file: &Path, seconds: u64) {
    let file = File::options().write(true).open(file).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
        .unwrap();
}

/// A ledger with a container's lease.
fn with_lease(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "true");
    setup.runmig(&["create", "-b", bundle.as_str(), "web"]).ok();
}

#[test]
fn names_file_system_of_state_directory() {
    let Some(setup) = setup() else { return };
    let state = setup.state();
    fs::create_dir(&state).unwrap();
    let mount = |options: &str| {
        let state = state.display();
        format!("mount -t tmpfs -o mode=0700,{options} none {state}")
    };
    let good = mount("size=64m,nr_inodes=5000");
    let disk = Diagnosis::inside(&setup, "true", &["--only=state"]);
    if !disk.ids("warn").contains("state.tmpfs") {
        return testkit::skip("the folder for temporary files is in memory");
    }
    for (id, status, bad) in [
        ("state.tmpfs", "warn", "true".to_owned()),
        ("state.space", "fail", mount("size=8m,nr_inodes=5000")),
        ("state.inodes", "fail", mount("size=64m,nr_inodes=500")),
    ] {
        let (text, _) = breaks_inside(&setup, "state", status, id, [&good, &bad]);
        assert!(text.contains(state.to_str().unwrap()), "{text}");
    }
}

#[test]
fn names_records_of_earlier_boot() {
    let Some(setup) = setup() else { return };
    with_lease(&setup);
    setup.runmig(&["delete", "--force", "web"]).ok();
    let bundle = setup.asking("1g.10gb", "true");
    setup.runmig(&["create", "-b", bundle.as_str(), "old"]).ok();
    let boot = setup.machine.dir().join("proc/sys/kernel/random/boot_id");
    let kept = fs::read(&boot).ok();
    fs::create_dir_all(boot.parent().unwrap()).unwrap();
    let (text, repair) = breaks(
        &setup,
        "state",
        "warn",
        "state.earlier-boot",
        || fs::write(&boot, "0b7d8b9e-4b3f-4f6e-8a67-1a2b3c4d5e6f\n").unwrap(),
        || drop(setup.migctl(&["gc"]).ok()),
    );
    assert!(
        text.starts_with("1 records are of an earlier boot"),
        "{text}"
    );
    assert_eq!(repair, "migctl gc");
    match kept {
        Some(kept) => fs::write(&boot, kept).unwrap(),
        None => fs::remove_file(&boot).unwrap(),
    }
}

/// doctor names the holder of a lock, and waits for none.
#[test]
fn names_holder_of_lock() {
    let Some(setup) = setup() else { return };
    with_lease(&setup);
    let us = runmig_lease::process::current();
    let held = RefCell::new(None);
    for name in ["ledger.lock", "plan.lock"] {
        let path = setup.state().join(name);
        let lock = |age| {
            let signature = format!("process {} (a test)\n{} 0\n", us.pid, us.start_time);
            fs::write(&path, signature).unwrap();
            let file = File::open(&path).unwrap();
            file.lock_exclusive().unwrap();
            ago(&path, age);
            *held.borrow_mut() = Some(file);
        };
        let (text, repair) = breaks(
            &setup,
            "state",
            "warn",
            "state.locks",
            || lock(120),
            || drop(held.borrow_mut().take()),
        );
        let holder = format!("by process {} (a test)", us.pid);
        assert!(
            text.starts_with(&format!("{} has been held for 12", path.display())),
            "{text}"
        );
        assert!(text.contains(&holder), "{text}");
        assert!(repair.contains(&format!("kill {}", us.pid)), "{repair}");
        // A lock is held all the time on a busy machine.
        lock(0);
        let seen = Diagnosis::of(&setup, &["--only=state.locks"]);
        let text = seen.items[0]["text"].as_str().unwrap();
        assert_eq!(seen.items[0]["status"], "ok", "{text}");
        assert!(text.contains(&format!("process {}", us.pid)), "{text}");
        held.borrow_mut().take();
    }
    setup.runmig(&["delete", "--force", "web"]).ok();
}

#[test]
fn names_unfinished_files() {
    let Some(setup) = setup() else { return };
    with_lease(&setup);
    setup.runmig(&["delete", "--force", "web"]).ok();
    let unfinished = setup.state().join("leases/.new-x");
    let repair = RefCell::new(String::new());
    let (text, _) = breaks(
        &setup,
        "state",
        "warn",
        "state.unfinished",
        || {
            fs::write(&unfinished, "half").unwrap();
            // A write that goes on is none.
            let seen = Diagnosis::of(&setup, &["--only=state.unfinished"]);
            assert_eq!(seen.ids("ok").len(), 1, "{:?}", seen.items);
            ago(&unfinished, 120);
            let seen = Diagnosis::of(&setup, &["--only=state.unfinished"]);
            *repair.borrow_mut() = seen.of_id("state.unfinished").1;
        },
        || drop(said(Command::new("sh").args(["-c", &repair.borrow()])).ok()),
    );
    assert!(text.starts_with(unfinished.to_str().unwrap()), "{text}");
    assert!(!unfinished.exists());
}
