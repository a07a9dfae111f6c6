//! Processes that hold a GPU or an instance.
//!
//! An instance is held while somebody has its capability's access file open and locked (a shared
//! flock): the kernel lets go of both when the process dies, however it dies, and the open file can
//! be seen in `/proc/PID/fd`. The machine's state lists who they are, for the process lists.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use fs2::FileExt;

use crate::driver_root::access_path;
use crate::engine::{Holder, Holds, Machine, Target};
use crate::state::Store;

/// Looks at the files; only for who has the machine locked.
pub struct Files<'a> {
    pub dir: &'a Path,
    pub machine: &'a Machine,
}

impl Holds for Files<'_> {
    fn held(&self, target: Target) -> bool {
        let Some(path) = access_path(self.dir, self.machine, target) else {
            return false;
        };
        let Ok(file) = File::open(path) else {
            return false;
        };
        FileExt::try_lock_exclusive(&file).is_err()
    }
}

/// The open file with which a process holds something.
pub struct Hold {
    _files: Vec<File>,
}

/// Takes hold of a GPU or an instance for this process. A process that holds a compute instance
/// holds its GPU instance too, as under CUDA.
pub fn hold(store: &Store, target: Target) -> io::Result<Hold> {
    let mut locked = store.lock()?;
    let not_there = |e| io::Error::new(io::ErrorKind::NotFound, e);
    let gpu = locked.machine.gpu(target.gpu).map_err(not_there)?;
    let mut targets = vec![target];
    if let Some(gi) = target.gi {
        let instance = gpu.gpu_instance(gi).map_err(not_there)?;
        if let Some(ci) = target.ci {
            instance.compute_instance(ci).map_err(not_there)?;
            targets.push(Target { ci: None, ..target });
        }
    }
    let mut files = Vec::new();
    for path in targets
        .iter()
        .filter_map(|t| access_path(store.dir(), &locked.machine, *t))
    {
        let file = File::open(path)?;
        FileExt::lock_shared(&file)?;
        files.push(file);
    }
    let pid = std::process::id();
    let start_time = start_time(pid).unwrap_or(0);
    locked.machine.holders.retain(lives);
    locked.machine.holders.push(Holder {
        pid,
        start_time,
        target,
    });
    locked.commit(Some(target.gpu), false)?;
    Ok(Hold { _files: files })
}

/// Those of the listed processes that are alive. Their files are left alone: a try for the lock
/// outside of a change would make the instance look held to a change beside it.
pub fn living(machine: &Machine) -> impl Iterator<Item = &Holder> {
    machine.holders.iter().filter(|h| lives(h))
}

fn lives(holder: &Holder) -> bool {
    start_time(holder.pid) == Some(holder.start_time)
}

/// When a process started, in clock ticks since the boot; `None` when there is no such process.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything; the fields after it start with the third.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}
