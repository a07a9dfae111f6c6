//! podman, with storage of its own and nothing of the system's: no systemd, no network, images
//! that are a folder.

use super::bundle::rootfs;
use super::process::{Said, said};
use super::setup::Setup;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub struct Podman<'a> {
    setup: &'a Setup,
    dir: TempDir,
    /// `runmig-NAME`, which reads the next.
    runtime: PathBuf,
    /// `/etc/runmig/NAME.toml`: podman 4 hands no environment on, so this is the way in.
    config: PathBuf,
}

impl<'a> Podman<'a> {
    pub fn new(setup: &'a Setup) -> Option<Podman<'a>> {
        if super::runtimes::on_path("podman").is_none() {
            super::skip("podman is not there; run scripts/setup");
            return None;
        }
        let dir = tempfile::Builder::new()
            .prefix("runmig-podman-")
            .tempdir()
            .expect("a temporary folder");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        rootfs(&dir.path().join("rootfs"));

        let name = format!("e2e-{}", super::unique());
        let etc = Path::new("/etc/runmig");
        fs::create_dir_all(etc).unwrap();
        let config = etc.join(format!("{name}.toml"));
        fs::copy(setup.config(), &config).unwrap();
        let runtime = setup.program(&format!("runmig-{name}"));
        symlink("runmig", &runtime).unwrap();
        Some(Podman {
            setup,
            dir,
            runtime,
            config,
        })
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        for option in ["root", "runroot", "tmpdir"] {
            let dir = self.dir.path().join(option);
            command.arg(format!("--{option}={}", dir.display()));
        }
        command
            .args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs"])
            .args(["--events-backend=file", "--log-level=error"])
            .arg(format!("--runtime={}", self.runtime.display()))
            .args(arguments)
            .env_remove("RUNMIG_CONFIG")
            .current_dir(self.dir.path());
        command
    }

    #[track_caller]
    pub fn podman(&self, arguments: &[&str]) -> Said {
        said(&mut self.command(arguments))
    }

    /// What every container here needs. Without CAP_SYS_RESOURCE its limits cannot be raised to
    /// podman's own.
    pub const OPTIONS: [&'static str; 3] = [
        "--network=none",
        "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=1024:1024",
    ];

    /// What podman calls; no other podman's.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    pub fn rootfs(&self) -> String {
        self.dir.path().join("rootfs").display().to_string()
    }

    /// `run` or `create`, the folder as the image, a shell script in it.
    #[track_caller]
    pub fn run(&self, verb: &str, options: &[&str], script: &str) -> Said {
        let rootfs = self.rootfs();
        let mut all = vec![verb];
        all.extend(Podman::OPTIONS);
        all.extend(options);
        all.extend(["--rootfs", &rootfs, "/bin/sh", "-c", script]);
        self.podman(&all)
    }
}

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        let _ = self
            .command(&["rm", "--all", "--force", "--time=0"])
            .output();
        for mount in self.mounts() {
            let _ = Command::new("umount").arg(mount).output();
        }
        let _ = fs::remove_file(&self.config);
        // Only if it is empty: it was not there before.
        let _ = fs::remove_dir("/etc/runmig");
    }
}

impl Podman<'_> {
    /// What podman left mounted, the innermost first.
    fn mounts(&self) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let dir = self.dir.path().to_str().unwrap();
        let ours = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let mut ours: Vec<String> = ours
            .filter(|at| at.starts_with(dir))
            .map(str::to_owned)
            .collect();
        ours.reverse();
        ours
    }
}
