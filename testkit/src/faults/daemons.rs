//! The MPS daemons of a world: none without a lease, and none that lost its limit.

use super::World;
use super::check::names;
use crate::prelude::*;

/// Returns the answer of the daemon in a directory, on the machine in another, to a command.
pub fn ask(machine: &Path, home: &Path, command: &str) -> String {
    let answer = Command::new("sh")
        .args(["-c", &format!("echo {command} | \"$0\"")])
        .arg(machine.join("usr/bin/nvidia-cuda-mps-control"))
        .env("CUDA_MPS_PIPE_DIRECTORY", home.join("pipes"))
        .output()
        .unwrap();
    String::from_utf8_lossy(&answer.stdout).trim().to_owned()
}

impl World {
    /// Notes the daemons that are there, to find what is left of them.
    pub fn note_daemons(&self) {
        let mut known = self.daemons.lock().unwrap();
        known.extend(names(&self.state().join("mps")));
        let leases = self.records().into_iter();
        known.extend(leases.filter_map(|r| Some(r.strip_prefix("lease ")?.to_owned())));
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
        let left = process::executing(&program);
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("daemons are left: {left:?}")),
        }
    }

    /// Returns the directories of the daemon of a lease.
    fn home_of(&self, lease: &Value) -> Result<PathBuf, String> {
        let leases = names(&self.state().join("mps"));
        let homes = leases.iter().map(|id| self.state().join("mps").join(id));
        let is_its = |home: &PathBuf| {
            let pid = fs::read(home.join("pipes/nvidia-cuda-mps-control.pid"));
            let pid = pid.ok().and_then(|bytes| String::from_utf8(bytes).ok());
            pid.is_some_and(|pid| {
                pid.trim_end_matches('\0').parse().ok() == lease["daemon"]["pid"].as_i64()
            })
        };
        let found = homes.into_iter().find(is_its);
        found.ok_or_else(|| format!("{leases:?} have no daemon of {lease:#}"))
    }

    /// Fails unless the daemon of a lease lives with its limit, and the container reaches it.
    pub fn is_held(&self, lease: &Value) -> Result<(), String> {
        let home = self.home_of(lease)?;
        if lease["daemon"]["alive"] != true {
            return Err(format!("the daemon is dead: {lease:#}"));
        }
        let inode = |name: &str| fs::metadata(home.join(name)).map(|m| m.ino()).ok();
        if inode("door/control").is_none() || inode("door/control") != inode("pipes/control") {
            return Err(format!("the door in {home:?} does not lead to its daemon"));
        }
        // The control program cuts it to whole units.
        let limit = lease["memoryBytes"].as_u64().unwrap_or_default() >> 30;
        match ask(
            &self.machine(),
            &home,
            "get_default_device_pinned_mem_limit 0",
        ) {
            told if told == format!("{limit}G") => Ok(()),
            other => Err(format!("the limit in {home:?} is {other:?}, not {limit}G")),
        }
    }

    /// Starts a server for the container, and raises its limit as root of the container can.
    pub fn raise_limit(&self, id: &str) {
        let lease = self.lease_of(id);
        let home = self.home_of(&lease).unwrap();
        ask(&self.machine(), &home, "start_server -uid 0");
        let server = ask(&self.machine(), &home, "get_server_list");
        let set = format!("set_device_pinned_mem_limit {server} 0 60G");
        assert_eq!(ask(&self.machine(), &home, &set), "");
        let lease = self.lease_of(id);
        assert_eq!(lease["limitChanged"], 60, "{lease:#}");
    }

    /// Fails unless the limits of a container hold all of its processes.
    pub fn has_whole_limits(&self, id: &str) -> Result<(), String> {
        let mut leases = self.leases();
        leases.retain(|l| l["container"] == id && l["enforcement"] == "mps");
        let is_whole = |l: &&Value| {
            l["limitChanged"].is_null() && l["around"].as_array().is_some_and(|all| all.is_empty())
        };
        match leases.iter().find(|lease| !is_whole(lease)) {
            Some(lease) => Err(format!("the limit of {id} has gaps: {lease:#}")),
            None => Ok(()),
        }
    }

    /// Ends the daemons of a test that has failed.
    pub fn end_daemons(&self) {
        self.note_daemons();
        for id in self.daemons.lock().unwrap().iter() {
            let cgroup = format!("runmig-mps-{id}");
            in_cgroup(&cgroup).into_iter().for_each(kill);
            crate::leftovers::remove_cgroup(&cgroup);
        }
    }
}
