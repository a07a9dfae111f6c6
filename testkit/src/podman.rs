//! podman, with storage of its own and nothing of the system's but the program: no systemd, no
//! network, and the configuration that is shipped.

use super::bundle::rootfs;
use super::leftovers::unmount_below;
use super::named::Named;
use super::{cgroup2, images};
use crate::prelude::*;

pub struct Podman<'a> {
    setup: &'a Setup,
    dir: TempDir,
    program: PathBuf,
    /// podman 4 hands no environment on.
    runmig: Named,
}

/// Both podmans, each over its own low-level runtimes: Debian's crun is too old for the version of the
/// specification that a current podman writes.
pub fn on_each<S: Into<Option<Setup>>>(setup: impl Fn(Low) -> S, test: impl Fn(&Setup, &Podman)) {
    for (program, low) in [
        (on_path("podman"), Low::Runc),
        (on_path("podman"), Low::Crun),
        (built("podman", "podman"), Low::NewRunc),
        (built("podman", "podman"), Low::NewCrun),
    ] {
        let setup = low.find().and_then(|_| setup(low).into());
        let Some(setup) = setup else {
            continue;
        };
        if let Some(podman) = Podman::of(&setup, program) {
            test(&setup, &podman);
        }
    }
}

/// The id that a `run --detach` or a `create` printed.
pub fn id(said: &Said) -> &str {
    said.stdout.trim()
}

impl<'a> Podman<'a> {
    /// The distribution's.
    pub fn new(setup: &'a Setup) -> Option<Podman<'a>> {
        let program = on_path("podman");
        if program.is_none() {
            super::skip("podman is not there; run scripts/setup");
        }
        Podman::of(setup, Some(program?))
    }

    fn of(setup: &'a Setup, program: Option<PathBuf>) -> Option<Podman<'a>> {
        let Some(program) = program else {
            super::skip_until_full("podman is not there; run scripts/setup full");
            return None;
        };
        let dir = crate::temporary("runmig-podman-", &std::env::temp_dir());
        rootfs(&dir.path().join("rootfs"));
        let runmig = Named::new(setup);
        let podman = Podman {
            setup,
            dir,
            program,
            runmig,
        };
        podman.configure();
        Some(podman)
    }

    /// Writes the shipped configuration with our runtime, and the needs of every container here:
    /// without CAP_SYS_RESOURCE limits cannot be raised to podman's own.
    fn configure(&self) {
        let ours = self.runmig.shipped("podman-config/50-runmig.conf");
        // podman limits the number of processes by default.
        let pids = match cgroup2::lacks_controllers() {
            true => "pids_limit = 0\n",
            false => "",
        };
        let text = ours.replace(
            "[engine]\n",
            &format!(
                "[containers]\nnetns = \"none\"\n{pids}\
                 default_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\n\
                 [engine]\ninfra_image = \"{IMAGE}\"\n",
            ),
        );
        fs::write(self.dir.path().join("containers.conf"), text).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        for option in ["root", "runroot", "tmpdir"] {
            let dir = self.dir.path().join(option);
            command.arg(format!("--{option}={}", dir.display()));
        }
        command
            .args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs"])
            .args(["--events-backend=file", "--log-level=error"])
            .arg("--runtime=runmig")
            .args(arguments)
            .env("CONTAINERS_CONF", self.dir.path().join("containers.conf"))
            .env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1")
            .env_remove("RUNMIG_CONFIG")
            .current_dir(self.dir.path());
        command
    }

    #[track_caller]
    pub fn podman(&self, arguments: &[&str]) -> Said {
        said(&mut self.command(arguments))
    }

    /// Returns the program that podman calls; no other podman's.
    pub fn path(&self) -> &Path {
        &self.runmig.program
    }

    pub fn rootfs(&self) -> String {
        self.dir.path().join("rootfs").display().to_string()
    }

    /// Gives its runmig more keys.
    pub fn configure_runmig(&self, more: &str) {
        self.setup.configure(more);
        self.runmig.configure_again(self.setup);
    }

    /// Has its runmig ask for each container.
    pub fn ask(&self, request: &str) {
        self.runmig.ask(self.setup, request);
    }

    /// Folder of its images and containers.
    pub fn storage(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// `run` or `create`, the folder as the image, a shell script in it.
    #[track_caller]
    pub fn run(&self, verb: &str, options: &[&str], script: &str) -> Said {
        let rootfs = self.rootfs();
        let mut all = vec![verb];
        all.extend(options);
        all.extend(["--rootfs", &rootfs, "/bin/sh", "-c", script]);
        self.podman(&all)
    }

    /// An image of the folder, with changes as in a Dockerfile.
    #[track_caller]
    pub fn import(&self, name: &str, changes: &[&str]) {
        let tar = self.dir.path().join("image.tar");
        images::tar(self.rootfs().as_ref(), &tar);
        let mut import = self.command(&["import"]);
        for change in changes {
            import.arg(format!("--change={change}"));
        }
        said(import.arg(&tar).arg(name)).ok();
    }

    /// `.State.NAME` of a container that runs.
    #[track_caller]
    pub fn pid(&self, id: &str, name: &str) -> i32 {
        let format = format!("--format={{{{.State.{name}}}}}");
        self.inspect(&format, id).stdout.trim().parse().unwrap()
    }

    /// Returns the output of `podman inspect`. podman looks through all of /dev, where other tests have
    /// machines (in /dev/shm), and fails if one goes meanwhile. Then this asks again.
    #[track_caller]
    pub fn inspect(&self, format: &str, id: &str) -> Said {
        let mut said = None;
        until("podman has looked through /dev", || {
            let looked = self.podman(&["inspect", format, id]);
            let lost_a_file = looked.stderr.contains("lstat /dev/shm/");
            said = Some(looked);
            !lost_a_file
        });
        said.unwrap().ok()
    }

    pub fn remove(&self, id: &str) -> Said {
        self.podman(&["rm", "--force", "--time=0", id])
    }

    /// As `podman 5.8.3`.
    pub fn name(&self) -> String {
        let said = said(Command::new(&self.program).arg("--version")).ok();
        let version = said.stdout.split(' ').next_back().unwrap().trim();
        format!("podman {version}")
    }
}

/// For the pause container of a pod, and what `podman kube play` runs.
pub const IMAGE: &str = "localhost/runmig-e2e:1";

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        let mut remove = self.command(&["rm", "--all", "--force", "--time=0"]);
        let _ = remove.output();
        let dir = self.dir.path().to_str().unwrap();
        // conmon may still have somebody clean up after a container, who would write into a folder that
        // is just being removed.
        for _ in 0..1000 {
            if with_argument(dir).is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        unmount_below(dir);
    }
}
