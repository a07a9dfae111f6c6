//! The distribution's podman in the node, with storage of its own.

use super::RACER;
use super::local::Engine;
use crate::node::Node;
use std::path::PathBuf;
use testkit::bundle::rootfs;
use testkit::{Said, cgroup2, said};

pub struct Podman<'a> {
    node: &'a Node,
    dir: PathBuf,
}

impl<'a> Podman<'a> {
    pub fn new(node: &'a Node) -> Podman<'a> {
        let dir = node.dir().join("podman");
        rootfs(&dir.join("rootfs"));
        node.run("migctl", &["configure", "podman"]).ok();
        Podman { node, dir }
    }

    fn podman(&self, arguments: &[&str]) -> Said {
        let mut command = self.node.inside("podman");
        for option in ["root", "runroot", "tmpdir"] {
            let dir = self.dir.join(option);
            command.arg(format!("--{option}={}", dir.display()));
        }
        command.args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs"]);
        command.args(["--events-backend=file", "--log-level=error"]);
        said(command.arg("--runtime=runmig").args(arguments))
    }
}

impl Engine for Podman<'_> {
    fn name(&self) -> &'static str {
        "podman"
    }

    fn run(&self, container: &str, profile: &str) -> Result<(), String> {
        let slice = format!("--annotation=runmig.dev/slice={profile}");
        let racer = format!("--env={RACER}={container}");
        let name = format!("--name={container}");
        let rootfs = self.dir.join("rootfs");
        // A machine may keep CAP_SYS_RESOURCE from us, and with it podman's own limits.
        let mut run = vec!["run", "--detach", "--network=none"];
        run.extend(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]);
        if cgroup2::lacks_controllers() {
            run.push("--pids-limit=0");
        }
        run.extend([&slice, &racer, &name, "--rootfs", rootfs.to_str().unwrap()]);
        run.extend(["sleep", "10000"]);
        let said = self.podman(&run);
        match said.status.success() {
            true => Ok(()),
            false => Err(said.stderr),
        }
    }

    fn remove(&self, container: &str) {
        // A container that was refused may be there or not.
        self.podman(&["rm", "--force", "--time=0", "--ignore", container])
            .ok();
    }
}

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        self.podman(&["rm", "--all", "--force", "--time=0"]);
    }
}
