//! The MPS daemons of a world: none without a lease, and none that lost its limit.

use super::World;
use super::check::names;
use crate::support::process::in_cgroup;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The limit of a half of a T4 beside what the daemon needs, as the control program tells it.
const LIMIT: &str = "7G";

impl World {
    /// Notes the daemons that are there, to find what is left of them.
    pub fn note_daemons(&self) {
        let mut known = self.daemons.lock().unwrap();
        known.extend(names(&self.state().join("mps")));
        let of_instance = |file: std::path::PathBuf| {
            let name = file.file_name()?.to_str()?.to_owned();
            name.contains(".mps.").then(|| name[..32].to_owned())
        };
        known.extend(self.records().into_iter().filter_map(of_instance));
    }

    /// Fails if a process, a cgroup or a directory of a daemon is left.
    pub fn no_daemon_is_left(&self) -> Result<(), String> {
        let folders = names(&self.state().join("mps"));
        if !folders.is_empty() {
            return Err(format!("directories of daemons are left: {folders:?}"));
        }
        for id in self.daemons.lock().unwrap().iter() {
            let cgroup = format!("runmig-mps-{id}");
            let processes = in_cgroup(&cgroup);
            if !processes.is_empty() {
                return Err(format!("processes of daemon {id} are left: {processes:?}"));
            }
            let root = Path::new("/sys/fs/cgroup");
            let hierarchies = names(root).into_iter().map(|name| root.join(name));
            for hierarchy in hierarchies.chain([root.to_owned()]) {
                if hierarchy.join(&cgroup).exists() {
                    return Err(format!("{} has {cgroup}", hierarchy.display()));
                }
            }
        }
        // A daemon of which nothing was noted.
        let program = self.machine().join("usr/bin/nvidia-cuda-mps-control");
        let is_ours = |pid: &str| {
            fs::read_link(Path::new("/proc").join(pid).join("exe")).is_ok_and(|exe| exe == program)
        };
        let mut left = names(Path::new("/proc"));
        left.retain(|pid| is_ours(pid));
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("daemons are left: {left:?}")),
        }
    }

    /// Fails unless the daemon of a lease lives with its limit, and the container reaches it.
    pub fn is_held(&self, lease: &Value) -> Result<(), String> {
        let instances = names(&self.state().join("mps"));
        let of = |id: &&String| {
            let pid = fs::read(
                self.state()
                    .join("mps")
                    .join(id)
                    .join("pipes/nvidia-cuda-mps-control.pid"),
            );
            let pid = pid.ok().and_then(|bytes| String::from_utf8(bytes).ok());
            pid.is_some_and(|pid| {
                pid.trim_end_matches('\0').parse().ok() == lease["daemon"]["pid"].as_i64()
            })
        };
        let Some(id) = instances.iter().find(of) else {
            return Err(format!("{instances:?} have no daemon of {lease:#}"));
        };
        if lease["daemon"]["alive"] != true {
            return Err(format!("the daemon is dead: {lease:#}"));
        }
        let folder = self.state().join("mps").join(id);
        let inode = |name: &str| fs::metadata(folder.join(name)).map(|m| m.ino()).ok();
        if inode("door/control").is_none() || inode("door/control") != inode("pipes/control") {
            return Err(format!("the door of {id} does not lead to its daemon"));
        }
        let ask = "echo get_default_device_pinned_mem_limit 0 | \"$0\"";
        let program = self.machine().join("usr/bin/nvidia-cuda-mps-control");
        let answer = Command::new("sh")
            .args(["-c", ask])
            .arg(program)
            .env("CUDA_MPS_PIPE_DIRECTORY", folder.join("pipes"))
            .output()
            .unwrap();
        match String::from_utf8_lossy(&answer.stdout).trim() {
            LIMIT => Ok(()),
            other => Err(format!("the limit of {id} is {other:?}")),
        }
    }

    /// Ends the daemons of a test that has failed.
    pub fn end_daemons(&self) {
        self.note_daemons();
        for id in self.daemons.lock().unwrap().iter() {
            let cgroup = format!("runmig-mps-{id}");
            in_cgroup(&cgroup)
                .into_iter()
                .for_each(crate::support::process::kill);
            crate::support::leftovers::remove_cgroup(&cgroup);
        }
    }
}
