//! The cgroup of a container, in a hierarchy of version 2.

use crate::Failure;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";

/// Returns the directory of a cgroup; none where version 2 is not at its place.
pub fn dir(path: &str) -> Option<PathBuf> {
    let root = Path::new(ROOT);
    let is_v2 = root.join("cgroup.controllers").exists();
    (is_v2 && path.starts_with('/')).then(|| root.join(path.trim_start_matches('/')))
}

pub fn enter(dir: &Path, pid: i32) -> Result<(), Failure> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e.into()),
        _ => {}
    }
    Ok(fs::write(dir.join("cgroup.procs"), pid.to_string())?)
}

/// Removes the cgroup of a container whose processes are dead, which leave it a moment later.
pub fn remove(dir: &Path) -> Result<(), Failure> {
    for _ in 0..10_000 {
        match fs::remove_dir(dir) {
            Err(e) if e.kind() == ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e.into()),
            _ => return Ok(()),
        }
    }
    Err(format!("{} has processes", dir.display()).into())
}
