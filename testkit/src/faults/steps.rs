//! The steps of a command in the ledger: the places where it can stand still while another command meets it.

use super::World;
use super::strace::{self, Call, Point};
use crate::Going;
use crate::process::{descendants, lock_waits};
use std::path::{Path, PathBuf};

/// The calls that lock or change the ledger.
const STEPS: &str = "openat,flock,link,linkat,rename,renameat,renameat2,unlink,unlinkat";

/// Returns whether a process or one of its children waits for a lock, which the stopped one has.
pub fn waits(pid: i32) -> bool {
    let all = [vec![pid], descendants(pid)].concat();
    lock_waits().iter().any(|(pid, _)| all.contains(pid))
}

/// A step in the ledger. The number of a look counts the looks at that file alone, since others depend on the machine.
pub struct Step {
    pub point: Point,
    pub file: Option<PathBuf>,
}

impl Step {
    /// Starts a command, and returns when it stands still at this step.
    pub fn stops(&self, call: &Call, log: &Path) -> Going {
        strace::stopped_at(call, log, (&self.point, self.file.as_deref()))
    }
}

/// Runs a command, and returns its steps in the ledger.
pub fn steps(world: &World, call: &Call, log: &Path) -> Vec<Step> {
    let state = world.state().to_string_lossy().into_owned();
    let mut looks: Vec<PathBuf> = Vec::new();
    let all = strace::calls(call, log, STEPS).into_iter();
    let step = |mut point: Point| {
        if !point.shown.contains(&state) {
            return None;
        }
        let mut file = None;
        if point.call == "openat" {
            let lock = point.shown.split('"').nth(1).map(PathBuf::from);
            let lock = lock.filter(|file| file.extension().is_some_and(|end| end == "lock"))?;
            looks.push(lock.clone());
            point.nth = looks.iter().filter(|file| **file == lock).count() as u64;
            // A reader of the ledger looks at its lock's generation.
            if !point.shown.contains("O_CREAT") {
                return None;
            }
            file = Some(lock);
        }
        Some(Step { point, file })
    };
    all.filter_map(step).collect()
}
