//! Others on the same machine.

use crate::world_matrix::enter::Inside;
use crate::world_matrix::node::Node;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use testkit::faults::check::{self, names};
use testkit::faults::operations::ID;
use testkit::prelude::*;

/// Another process holds one of runmig's locks and is stopped. `file` is below the node's folder.
pub fn stopped_holder(node: &Node, file: &str) -> Inside {
    let file = node.path(file);
    let mut flock = Command::new("flock");
    flock.args(["--no-fork", "--exclusive"]).arg(&file);
    let holder: Going = going(flock.args(["sleep", "infinity"]));
    let pid = holder.pid();
    until("the lock is taken", || is_locked(&file));
    if file.is_file() {
        sign(&file, &format!("process {pid} (create of another)"));
    }
    holder.stop();
    Inside::default().and_leave(move || holder.kill())
}

/// Writes the text of a lock's holder. The ledger's lock has its generation before that.
fn sign(lock: &Path, text: &str) {
    let kept = if lock.ends_with("ledger.lock") { 21 } else { 0 };
    let mut bytes = fs::read(lock).unwrap();
    bytes.resize(kept, 0);
    bytes.extend(text.bytes());
    fs::write(lock, bytes).unwrap();
}

fn is_locked(file: &Path) -> bool {
    let mut tried = Command::new("flock");
    tried.args(["--nonblock", "--shared"]).arg(file).arg("true");
    !tried.status().unwrap().success()
}

/// As any process can that can open it. Not every operation has a bundle.
pub fn locked_bundle(node: &Node) -> Inside {
    match node.path("bundles").join(ID).exists() {
        true => stopped_holder(node, &format!("bundles/{ID}")),
        false => Inside::default(),
    }
}

/// With a time limit that is met soon.
pub fn stopped_locker(node: &Node, lock: &str) -> Inside {
    node.set("lock_timeout = \"300ms\"");
    let all = names(&node.state());
    let found = all
        .iter()
        .find(|name| name.starts_with(lock) && name.ends_with(".lock"));
    stopped_holder(node, &format!("state/{}", found.expect("a lock file")))
}

/// A lock whose holder has not signed. The signature is of one that is gone, and whose number another
/// process has now.
pub fn unsigned_locker(node: &Node, lock: &str) -> Inside {
    let inside = stopped_locker(node, lock);
    let signature = format!("process {} (create of another)\n1 0\n", std::process::id());
    sign(&node.state().join(format!("{lock}.lock")), &signature);
    inside
}

/// A package upgrade, or `alternatives`, has given the low-level runtime another path.
pub fn moved_runtime(node: &Node) -> Inside {
    let config = node.path("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let runtime = before.split('"').nth(1).expect("a runtime").to_owned();
    let moved = format!("{runtime}-{}", unique());
    fs::hard_link(&runtime, &moved).unwrap();
    fs::write(&config, before.replacen(&runtime, &moved, 1)).unwrap();
    Inside::default().and_leave(move || {
        fs::write(config, before).unwrap();
        fs::remove_file(moved).unwrap();
    })
}

/// The ledger has another version, until the world is left.
pub fn newer_version(node: &Node) -> Inside {
    let file = node.state().join("ledger.json");
    let before = fs::read(&file).ok();
    if before.is_some() {
        check::rewrite(&node.state(), |header, _| {
            header["apiVersion"] = "runmig.dev/v99".into()
        });
    }
    Inside::default().and_leave(move || {
        if let Some(before) = before {
            fs::write(file, before).unwrap();
        }
    })
}

/// The clock has jumped since the records were written: every time in them is so much off.
pub fn clock(node: &Node, ahead: bool) -> Inside {
    if node.state().join("ledger.json").exists() {
        check::rewrite(&node.state(), |_, body| shift(body, ahead));
    }
    Inside::default()
}

/// For a clock that has jumped ahead, what was written before is older.
fn shift(value: &mut Value, ahead: bool) {
    const HOUR: Duration = Duration::from_secs(3600);
    match value {
        Value::String(text) => {
            if let Ok(time) = humantime::parse_rfc3339(text) {
                let moved: SystemTime = if ahead { time - HOUR } else { time + HOUR };
                *text = humantime::format_rfc3339(moved).to_string();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|v| shift(v, ahead)),
        Value::Object(all) => all.values_mut().for_each(|v| shift(v, ahead)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Makes instances and destroys them, as fast as the driver does it.
pub fn administrator(node: &Node) -> Inside {
    let over = Arc::new(AtomicBool::new(false));
    let (asked, machine) = (over.clone(), node.machine());
    let works = std::thread::spawn(move || {
        while !asked.load(Ordering::Relaxed) {
            crate::world_matrix::administrator::makes_and_destroys(&machine);
        }
    });
    Inside::default().and_leave(move || {
        over.store(true, Ordering::Relaxed);
        works.join().unwrap();
    })
}
