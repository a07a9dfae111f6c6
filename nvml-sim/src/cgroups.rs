//! Cgroups of version 2: those that clients name, and those of processes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::sys;

/// The places where a machine has the hierarchy, alone or beside those of version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The inode of the root of the hierarchy.
const ROOT: u64 = 1;
/// The cgroups with `+dmem` in their `cgroup.subtree_control`, a path below the root of the
/// hierarchy in a line. No kernel is asked: most have no dmem.
const DMEM_ENABLED: &str = "dmem/enabled";

/// A cgroup.
pub struct Cgroup {
    mount: PathBuf,
    /// The path below the root of the hierarchy, as `/proc/PID/cgroup` has it.
    pub path: String,
    pub inode: u64,
}

impl Cgroup {
    /// Finds the cgroup of a directory; `None` if that is of another file system.
    ///
    /// # Errors
    /// The directory does not exist.
    pub fn find(dir: &Path) -> io::Result<Option<Cgroup>> {
        let dir = dir.canonicalize()?;
        if !sys::is_cgroup2(&dir) {
            return Ok(None);
        }
        let metadata = dir.metadata()?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let above = dir.ancestors().take_while(|dir| sys::is_cgroup2(dir));
        let mount = above.last().unwrap_or(&dir).to_path_buf();
        let below = dir.strip_prefix(&mount).unwrap_or(&dir);
        Ok(Some(Cgroup {
            path: Path::new("/").join(below).to_string_lossy().into_owned(),
            inode: metadata.ino(),
            mount,
        }))
    }

    pub fn is_root(&self) -> bool {
        self.inode == ROOT
    }

    /// Returns whether another cgroup of the hierarchy is gone. A process that sees a part of the
    /// hierarchy alone cannot tell.
    pub fn is_gone(&self, path: &str, inode: u64) -> bool {
        let at = |dir: &Path| dir.metadata().map(|m| m.ino()).ok();
        at(&self.mount) == Some(ROOT)
            && at(&self.mount.join(path.trim_start_matches('/'))) != Some(inode)
    }

    /// Returns whether the cgroup has `dmem.*` files: every cgroup above has to hand the
    /// controller down.
    pub fn has_dmem_files(&self, machine: &Path) -> bool {
        let enabled = fs::read_to_string(machine.join(DMEM_ENABLED)).unwrap_or_default();
        let hands_down = |path: &Path| enabled.lines().any(|line| Path::new(line.trim()) == path);
        !self.is_root() && Path::new(&self.path).ancestors().skip(1).all(hands_down)
    }
}

/// Makes the file for the cgroups that hand dmem down. At first there is none.
pub fn create_dmem(machine: &Path) -> io::Result<()> {
    let file = machine.join(DMEM_ENABLED);
    file.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(file, "")
}

/// Returns the inodes of the cgroup of a process and of those above, as far as this process sees
/// them.
pub fn of_process(proc_dir: &Path, pid: u32) -> Vec<u64> {
    let by_path = by_path(proc_dir, pid).unwrap_or_default();
    let own = fs::read_link(proc_dir.join("self")).ok();
    if own.is_none_or(|own| own != Path::new(&pid.to_string())) {
        return by_path;
    }
    // In a cgroup namespace, or where the hierarchy is not mounted, the path says little or nothing.
    match sys::own_cgroup() {
        Some(inode) if by_path.first() != Some(&inode) => vec![inode],
        _ => by_path,
    }
}

fn by_path(proc_dir: &Path, pid: u32) -> Option<Vec<u64>> {
    let text = fs::read_to_string(proc_dir.join(pid.to_string()).join("cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let is_normal = |part| matches!(part, Component::Normal(_));
    if !Path::new(path).components().all(is_normal) {
        return None;
    }
    let mut mounts = MOUNTS.iter().map(Path::new);
    let mount = mounts.find(|m| sys::is_cgroup2(m))?;
    let dir = mount.join(path);
    let above = dir.ancestors().take_while(|dir| dir.starts_with(mount));
    above.map(|dir| Some(dir.metadata().ok()?.ino())).collect()
}
