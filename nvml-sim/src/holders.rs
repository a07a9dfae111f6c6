//! Processes that hold a GPU or an instance.
//!
//! An instance is held while somebody has its capability's access file open and locked (a shared
//! flock): the kernel lets go of both when the process dies, however it dies, and the open file can
//! be seen in `/proc/PID/fd`. The machine's state lists who they are, for the process lists.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use fs2::FileExt;

use crate::cgroups;
use crate::driver_root::access_path;
use crate::engine::{ComputeMode, Holder, HolderKind, Holds, Machine, MemoryLimit, Target};
use crate::state::Store;

/// The folder of a machine over which a test may bind-mount the host's `/proc`: pids in a machine
/// are the host's, also for processes in containers.
pub const HOST_PROC: &str = "host-proc";

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
    files: Vec<File>,
}

impl Drop for Hold {
    /// Unlocks the files. A child that another thread has forked, and that has not called exec yet, has them open too.
    fn drop(&mut self) {
        for file in &self.files {
            let _ = FileExt::unlock(file);
        }
    }
}

/// Why a process may not compute on a GPU.
#[derive(Debug)]
pub enum Refusal {
    /// The GPU or the instance does not exist, or does not answer.
    Missing(String),
    /// The compute mode does not admit the process.
    ComputeMode(String),
    /// Too few bytes are free; these are.
    OutOfMemory(u64),
    Io(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Missing(why) | Refusal::ComputeMode(why) => f.write_str(why),
            Refusal::OutOfMemory(free) => write!(f, "out of memory: {} MiB are free", free >> 20),
            Refusal::Io(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Io(error)
    }
}

/// Takes hold of a GPU or an instance for this process. A process that holds a compute instance
/// holds its GPU instance too, as under CUDA.
///
/// # Errors
/// The target does not exist, its memory is too small, or the GPU's compute mode does not allow it.
pub fn hold(store: &Store, target: Target, memory: u64) -> io::Result<Hold> {
    let pid = std::process::id();
    let proc_dir = proc_dir(store.dir());
    let holder = Holder {
        pid,
        start_time: start_time(&proc_dir, pid).unwrap_or(0),
        target,
        memory,
        managed: 0,
        cgroups: cgroups::of_process(&proc_dir, pid),
        kind: HolderKind::Plain,
    };
    list(store, holder, true).map_err(|refusal| match refusal {
        Refusal::Io(error) => error,
        Refusal::Missing(_) => io::Error::new(io::ErrorKind::NotFound, refusal.to_string()),
        other => io::Error::other(other.to_string()),
    })
}

/// Lists a process as a holder, or changes the memory of one that is listed. Memory that grows must
/// be free and within the limits of the process's cgroups; a new process must be admitted by the
/// compute mode. The returned value holds the target for the calling process if `lock` is true.
///
/// # Errors
/// The machine does not admit the process, or the caller may not change the machine.
pub fn list(store: &Store, holder: Holder, lock: bool) -> Result<Hold, Refusal> {
    let mut locked = store.lock()?;
    let dir = store.dir();
    let proc_dir = proc_dir(dir);
    let targets = targets(&locked.machine, holder.target)?;
    locked.machine.holders.retain(|h| lives(&proc_dir, h));
    let holders = &locked.machine.holders;
    let listed = holders.iter().position(|h| is_same(h, &holder));
    let before = listed.map(|i| locked.machine.holders.remove(i));
    // A process that gives memory back is not asked whether it fits.
    let grows = |size: fn(&Holder) -> u64| before.as_ref().is_none_or(|b| size(b) < size(&holder));
    if grows(|h| h.memory) {
        may_compute(dir, &locked.machine, &holder)?;
    }
    if grows(Holder::limited_memory) {
        let free = free_under_limits(dir, &locked.machine, holder.target.gpu, &holder.cgroups);
        if free < holder.limited_memory() {
            return Err(Refusal::OutOfMemory(free));
        }
    }
    let files = match lock {
        true => lock_files(dir, &locked.machine, &targets)?,
        false => Vec::new(),
    };
    let gpu = holder.target.gpu;
    locked.machine.holders.push(holder);
    locked.commit(Some(gpu), false)?;
    Ok(Hold { files })
}

/// Takes a process off the list.
pub fn unlist(store: &Store, holder: &Holder) -> io::Result<()> {
    let mut locked = store.lock()?;
    let proc_dir = proc_dir(store.dir());
    let keeps = |h: &Holder| lives(&proc_dir, h) && !is_same(h, holder);
    locked.machine.holders.retain(keeps);
    locked.commit(Some(holder.target.gpu), false)
}

/// Locks the files of a GPU or an instance for the calling process, without an entry in the list.
pub fn lock_files_of(store: &Store, target: Target) -> io::Result<Hold> {
    let machine = store.load()?;
    let targets = targets(&machine, target).map_err(|e| io::Error::other(e.to_string()))?;
    let files = lock_files(store.dir(), &machine, &targets)?;
    Ok(Hold { files })
}

fn is_same(one: &Holder, other: &Holder) -> bool {
    let key = |h: &Holder| (h.pid, h.start_time, h.target, h.kind);
    key(one) == key(other)
}

/// Returns the target and what a process holds with it.
fn targets(machine: &Machine, target: Target) -> Result<Vec<Target>, Refusal> {
    let missing = |code: crate::engine::Code| Refusal::Missing(code.to_string());
    let gpu = machine.gpu(target.gpu).map_err(missing)?;
    let mut targets = vec![target];
    if let Some(gi) = target.gi {
        let instance = gpu.gpu_instance(gi).map_err(missing)?;
        if let Some(ci) = target.ci {
            instance.compute_instance(ci).map_err(missing)?;
            targets.push(Target { ci: None, ..target });
        }
    }
    Ok(targets)
}

fn lock_files(dir: &Path, machine: &Machine, targets: &[Target]) -> io::Result<Vec<File>> {
    let paths = targets.iter().filter_map(|t| access_path(dir, machine, *t));
    let lock = |path: PathBuf| {
        let file = File::open(path)?;
        FileExt::lock_shared(&file)?;
        Ok(file)
    };
    paths.map(lock).collect()
}

/// Checks the GPU's compute mode and its free memory for a process that is not listed.
fn may_compute(dir: &Path, machine: &Machine, holder: &Holder) -> Result<(), Refusal> {
    let target = holder.target;
    let gpu = &machine.gpus[target.gpu as usize];
    let whole = Target::of_gpu(target.gpu);
    match gpu.compute_mode {
        ComputeMode::Default => {}
        ComputeMode::Prohibited => {
            let why = "the compute mode is prohibited".to_owned();
            return Err(Refusal::ComputeMode(why));
        }
        ComputeMode::ExclusiveProcess => {
            // An MPS server has the GPU for its clients.
            let excludes = |h: &&Holder| {
                whole.contains(h.target)
                    && (holder.kind != HolderKind::MpsClient || h.kind == HolderKind::Plain)
            };
            if let Some(other) = living(dir, machine).find(excludes) {
                return Err(Refusal::ComputeMode(format!(
                    "process {} has the GPU to itself (compute mode exclusive-process)",
                    other.pid
                )));
            }
        }
    }
    let free = free(dir, machine, target);
    if free < holder.memory {
        return Err(Refusal::OutOfMemory(free));
    }
    Ok(())
}

/// Returns the bytes that are free for a process on a GPU or an instance.
pub fn free(dir: &Path, machine: &Machine, target: Target) -> u64 {
    let gpu = &machine.gpus[target.gpu as usize];
    let whole = Target::of_gpu(target.gpu);
    // A process in an instance uses memory of the GPU too.
    let mut rooms = vec![(whole, gpu.model().memory_mb - gpu.model().reserved_mb)];
    if let Some(Ok(gi)) = target.gi.map(|id| gpu.gpu_instance(id)) {
        rooms.push((Target { ci: None, ..target }, gpu.profile_of(gi).memory_mb));
    }
    let free = |(room, size): (Target, u64)| (size << 20).saturating_sub(used(dir, machine, room));
    rooms.into_iter().map(free).min().unwrap_or(0)
}

/// Returns the bytes that living processes use on a GPU or an instance.
pub fn used(dir: &Path, machine: &Machine, target: Target) -> u64 {
    let there = living(dir, machine).filter(|holder| target.contains(holder.target));
    there.map(|holder| holder.memory).sum()
}

/// Returns the bytes that a process in these cgroups can have before it reaches a limit of one.
pub fn free_under_limits(dir: &Path, machine: &Machine, gpu: u32, cgroups: &[u64]) -> u64 {
    let free = |limit: &MemoryLimit| {
        let used = used_in_cgroup(dir, machine, gpu, limit.inode);
        limit.hard.saturating_sub(used)
    };
    let limits = machine.binding_limits(gpu, cgroups);
    limits.into_iter().map(free).min().unwrap_or(u64::MAX)
}

/// Returns the bytes on a GPU that count against the limit of a cgroup.
pub fn used_in_cgroup(dir: &Path, machine: &Machine, gpu: u32, inode: u64) -> u64 {
    let there = living(dir, machine).filter(|h| h.target.gpu == gpu);
    let charged = there.filter(|h| machine.is_charged(inode, h));
    charged.map(Holder::limited_memory).sum()
}

/// Those of the listed processes that are alive. Their files are left alone: a try for the lock
/// outside of a change would make the instance look held to a change beside it.
pub fn living<'a>(dir: &Path, machine: &'a Machine) -> impl Iterator<Item = &'a Holder> {
    let proc_dir = proc_dir(dir);
    machine.holders.iter().filter(move |h| lives(&proc_dir, h))
}

fn lives(proc_dir: &Path, holder: &Holder) -> bool {
    start_time(proc_dir, holder.pid) == Some(holder.start_time)
}

/// Returns the folder that shows the host's processes: that of the machine if a test has mounted
/// the host's `/proc` there.
pub fn proc_dir(dir: &Path) -> PathBuf {
    let mounted = dir.join(HOST_PROC);
    match fs::read_link(mounted.join("self")) {
        Ok(_) => mounted,
        Err(_) => "/proc".into(),
    }
}

/// Returns when a process started, in clock ticks since the boot; `None` when there is no such
/// process or it is dead and only waits for its parent.
pub fn start_time(proc_dir: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(proc_dir.join(pid.to_string()).join("stat")).ok()?;
    // The name in brackets may hold anything; the fields after it start with the third, the state.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}
