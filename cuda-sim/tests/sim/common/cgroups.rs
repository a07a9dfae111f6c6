//! Cgroups of version 2 for a test, and clients in them.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::{Client, Machine};

/// Returns a machine whose driver keeps limits by cgroup itself.
pub fn misc() -> Machine {
    Machine::new("--gpu H100-80GB --mig off --driver 615")
}

/// Returns one that leaves them to dmem, which the root of the hierarchy hands down.
pub fn dmem() -> Machine {
    let machine = Machine::new("--gpu H100-80GB --mig off --driver 615 --limits dmem");
    enable_dmem(&machine, &[&hierarchy()]);
    machine
}

/// A cgroup, removed when this value is dropped. Clients in it have to end before.
pub struct Cgroup(PathBuf);

/// Returns the folder of the hierarchy.
pub fn hierarchy() -> PathBuf {
    let places = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
    let mut places = places.into_iter();
    let mounted = places.find(|place| nvml_sim::sys::is_cgroup2(place));
    mounted.expect("a machine with cgroups of version 2")
}

impl Cgroup {
    /// Makes a cgroup right below the root of the hierarchy.
    pub fn new() -> Cgroup {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cuda-sim-{}-{number}", std::process::id());
        Cgroup::make(hierarchy().join(name))
    }

    pub fn child(&self, name: &str) -> Cgroup {
        Cgroup::make(self.join(name))
    }

    fn make(dir: PathBuf) -> Cgroup {
        fs::create_dir(&dir).unwrap();
        Cgroup(dir)
    }

    /// Removes the cgroup. A process may be in it for a moment after its end.
    fn remove(&self) {
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("cannot remove {}", self.display());
    }

    /// Runs a program in the cgroup.
    pub fn run(&self, program: &Command) -> Command {
        let script = "echo 0 >\"$0/cgroup.procs\" && exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&self.0);
        command.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
    }

    /// Starts a client without MPS in the cgroup.
    pub fn client(&self, machine: &Machine) -> Client {
        Client::start(&mut self.run(&machine.client_program(Path::new("/nonexistent"))))
    }
}

impl Deref for Cgroup {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        match std::thread::panicking() {
            true => drop(fs::remove_dir(&self.0)),
            false => self.remove(),
        }
    }
}

/// Enables dmem for the children of cgroups, as `+dmem` in `cgroup.subtree_control` does.
pub fn enable_dmem(machine: &Machine, cgroups: &[&Path]) {
    let root = hierarchy();
    let path = |cgroup: &&Path| {
        let below = cgroup.strip_prefix(&root).unwrap();
        format!("/{}\n", below.display())
    };
    let enabled: String = cgroups.iter().map(path).collect();
    fs::write(machine.dir().join("dmem/enabled"), enabled).unwrap();
}
