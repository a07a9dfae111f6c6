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
use crate::engine::{ComputeMode, Holder, Holds, Machine, Target};
use crate::state::Store;

/// Looks at the files. The caller has the machine locked.
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
///
/// # Errors
/// The target does not exist, its memory is too small, or the GPU's compute mode does not allow it.
pub fn hold(store: &Store, target: Target, memory: u64) -> io::Result<Hold> {
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
    may_compute(&locked.machine, target, memory)?;
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
        memory,
    });
    locked.commit(Some(target.gpu), false)?;
    Ok(Hold { _files: files })
}

/// Checks the GPU's compute mode and its free memory for one more process.
fn may_compute(machine: &Machine, target: Target, memory: u64) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::other(why));
    let gpu = &machine.gpus[target.gpu as usize];
    let whole = Target {
        gpu: target.gpu,
        gi: None,
        ci: None,
    };
    match gpu.compute_mode {
        ComputeMode::Default => {}
        ComputeMode::Prohibited => return refused("the compute mode is prohibited".to_owned()),
        ComputeMode::ExclusiveProcess => {
            if let Some(other) = living(machine).find(|h| whole.contains(h.target)) {
                return refused(format!(
                    "process {} has the GPU to itself (compute mode exclusive-process)",
                    other.pid
                ));
            }
        }
    }
    // A process in an instance uses memory of the GPU too.
    let mut rooms = vec![(whole, gpu.model().memory_mb - gpu.model().reserved_mb)];
    if let Some(Ok(gi)) = target.gi.map(|id| gpu.gpu_instance(id)) {
        rooms.push((Target { ci: None, ..target }, gpu.profile_of(gi).memory_mb));
    }
    let free = |(room, size): (Target, u64)| (size << 20).saturating_sub(used(machine, room));
    match rooms.into_iter().map(free).min() {
        Some(free) if free < memory => {
            refused(format!("out of memory: {} MiB are free", free >> 20))
        }
        _ => Ok(()),
    }
}

/// Returns the bytes that living processes use on a GPU or an instance.
pub fn used(machine: &Machine, target: Target) -> u64 {
    let there = living(machine).filter(|holder| target.contains(holder.target));
    there.map(|holder| holder.memory).sum()
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
