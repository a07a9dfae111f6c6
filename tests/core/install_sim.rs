//! `scripts/install-sim`: the simulated driver alone, in a prefix, and commands that run on its machines.

use testkit::prelude::*;

struct Place(TempDir);

impl Place {
    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn script(&self, arguments: &[&str]) -> Command {
        let mut command = crate::installs("install-sim");
        command.arg("--prefix").arg(self.at("sim"));
        command.args(arguments);
        command
    }

    /// Runs an installed program, without the programs of the build.
    fn run(&self, program: &str, arguments: &[&str]) -> Said {
        let mut command = Command::new(self.at("sim/bin").join(program));
        let bin = self.at("sim/bin");
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
        command.env("PATH", path).env_remove("LD_LIBRARY_PATH");
        said(command.current_dir(&self.0).args(arguments))
    }
}

#[test]
fn removes_what_it_put_there_alone() {
    let place = Place(TempDir::new().unwrap());
    for _ in 0..2 {
        said(&mut place.script(&[])).ok();
    }
    let new = ["new", "node", "--gpu", "l4", "--mps"];
    place.run("nvml-sim", &new).ok();
    fs::write(place.at("sim/bin/other"), "").unwrap();
    for _ in 0..2 {
        said(&mut place.script(&["--remove"])).ok();
    }
    assert!(!place.at("sim/lib/nvml-sim").exists());
    let left: Vec<_> = fs::read_dir(place.at("sim/bin")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(place.at("node/state.json").exists(), "machines stay");
    let wrong = said(&mut place.script(&["--destdir"])).exits(1);
    wrong.warns("unknown argument --destdir");
}

/// What mig-parted looks at, and nvidia-smi's way to the driver.
#[test]
fn command_sees_machine() {
    if !nix::unistd::geteuid().is_root() {
        return skip("mount namespaces are made by root");
    }
    let place = Place(TempDir::new().unwrap());
    said(&mut place.script(&[])).ok();
    let new = "new node --gpu A100-80GB --gpu H100-80GB --mig off".split(' ');
    place.run("nvml-sim", &new.collect::<Vec<_>>()).ok();
    let look = "cat /proc/modules /sys/bus/pci/devices/*/device; echo $LD_LIBRARY_PATH; test -e /proc/self/status";
    let seen = place.run("nvml-sim-run", &["node", "sh", "-c", look]).ok();
    let library = fs::canonicalize(place.at("node/lib")).unwrap();
    let lines = [
        "nvidia 1 0 - Live 0x0",
        "0x20b2",
        "0x2330",
        library.to_str().unwrap(),
    ];
    assert_eq!(seen.stdout.lines().collect::<Vec<_>>(), lines);

    let run = |arguments: &[&str]| place.run("nvml-sim-run", arguments);
    run(&["node", "nvidia-smi", "--gpu-reset", "-i", "0"]).ok();
    run(&["node", "sh", "-c", "exit 7"]).exits(7);
    let words = "nowhere is not a machine; hint: make one with nvml-sim new nowhere";
    run(&["nowhere", "true"]).exits(1).warns(words);
}
