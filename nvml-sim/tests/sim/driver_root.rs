//! The files that stand for the kernel module's.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::common::Sim;

fn major(sim: &Sim, driver: &str) -> u32 {
    let devices = sim.read("proc/devices");
    let mut lines = devices.lines().filter_map(|l| l.trim().split_once(' '));
    let (major, _) = lines.find(|(_, name)| *name == driver).unwrap();
    major.parse().unwrap()
}

/// Major and minor of a node.
fn node(sim: &Sim, path: &str) -> (u32, u32) {
    let metadata = sim.dir().join(path).metadata().unwrap();
    assert!(metadata.file_type().is_char_device(), "{path}");
    (libc::major(metadata.rdev()), libc::minor(metadata.rdev()))
}

fn access(sim: &Sim, path: &str) -> Option<String> {
    let path = sim.dir().join("proc/driver/nvidia/capabilities").join(path);
    std::fs::read_to_string(path).ok()
}

#[test]
fn has_the_table_of_minors() {
    let table = Sim::new("--gpu A30").read("proc/driver/nvidia-caps/mig-minors");
    let lines: Vec<&str> = table.lines().collect();
    let first = ["config 1", "monitor 2", "gpu0/gi0/access 3"];
    assert_eq!(&lines[..3], first);
    assert_eq!(lines[3], "gpu0/gi0/ci0/access 4");
    assert!(lines.contains(&"gpu0/gi1/access 12") && lines.contains(&"gpu0/gi1/ci0/access 13"));
    assert_eq!(lines.last(), Some(&"gpu31/gi14/ci7/access 4322"));
    assert_eq!(lines.len(), 4322);
}

#[test]
fn makes_nodes_with_numbers_of_proc() {
    let sim = Sim::new("--gpu A100-80GB --count 2");
    for (path, driver, minor) in [
        ("nvidia0", "nvidia", 0),
        ("nvidia1", "nvidia", 1),
        ("nvidiactl", "nvidiactl", 255),
        ("nvidia-uvm", "nvidia-uvm", 0),
        ("nvidia-uvm-tools", "nvidia-uvm", 1),
        ("nvidia-caps/nvidia-cap1", "nvidia-caps", 1),
    ] {
        let found = node(&sim, &format!("dev/{path}"));
        assert_eq!(found, (major(&sim, driver), minor), "{path}");
    }
    let fixed = ["nvidia", "nvidiactl"].map(|driver| major(&sim, driver));
    assert_eq!(fixed, [195, 195]);
    let host = std::fs::read_to_string("/proc/devices").unwrap();
    for driver in ["nvidia-uvm", "nvidia-nvlink", "nvidia-caps"] {
        let ours = major(&sim, driver).to_string();
        let mut of_host = host.lines().map(|l| l.split_whitespace().next());
        assert!(of_host.all(|major| major != Some(&ours)), "{driver}");
    }
}

#[test]
fn nvidia_modeset_needs_a_display() {
    let headless = Sim::new("--gpu H100");
    assert!(!headless.read("proc/devices").contains("nvidia-modeset"));
    assert!(!headless.dir().join("dev/nvidia-modeset").exists());
    let with_display = Sim::new("--gpu H100 --modeset");
    assert_eq!(major(&with_display, "nvidia-modeset"), 195);
    assert_eq!(node(&with_display, "dev/nvidia-modeset"), (195, 254));
    with_display.run("reboot", "");
    assert_eq!(node(&with_display, "dev/nvidia-modeset"), (195, 254));
}

#[test]
fn capability_files_follow_instances() {
    let sim = Sim::new("--gpu A100-80GB --count 2");
    sim.run("create", "--gpu 1 --profile 2g.20gb --start 0");
    let minor = 3 + 135 + 9 * 3;
    let text = |minor, mode| {
        format!("DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")
    };
    let (gi, ci) = ("gpu1/mig/gi3/access", "gpu1/mig/gi3/ci0/access");
    assert_eq!(access(&sim, gi), Some(text(minor, 292)));
    assert_eq!(access(&sim, ci), Some(text(minor + 1, 292)));
    assert_eq!(access(&sim, "mig/config"), Some(text(1, 256)));
    assert_eq!(access(&sim, "fabric-imex-mgmt"), Some(text(4323, 256)));
    let capability = format!("dev/nvidia-caps/nvidia-cap{minor}");
    let caps = major(&sim, "nvidia-caps");
    assert_eq!(node(&sim, &capability), (caps, minor));
    sim.run("destroy", "--gpu 1 --gi 3 --ci 0");
    assert_eq!(access(&sim, ci), None);
    assert!(access(&sim, gi).is_some());
    sim.run("destroy", "--gpu 1 --gi 3");
    assert_eq!(access(&sim, gi), None);
    assert!(!sim.dir().join(capability).exists());
    assert!(sim.dir().join("dev/nvidia-caps/nvidia-cap2").exists());
}

#[test]
fn boot_removes_nodes_and_files() {
    let sim = Sim::new("--gpu A30 --gpu H100");
    sim.run("create", "--gpu 0 --profile 1g.6gb");
    sim.run("create", "--gpu 1 --profile 1g.10gb");
    sim.run("reboot", "");
    assert_eq!(access(&sim, "gpu0/mig/gi3/access"), None);
    let capabilities = sim.dir().join("proc/driver/nvidia/capabilities");
    let has_mig = ["gpu0/mig", "gpu1/mig"].map(|mig| capabilities.join(mig).exists());
    assert_eq!(has_mig, [true, false]);
    let nodes = std::fs::read_dir(sim.dir().join("dev/nvidia-caps"));
    assert_eq!(nodes.unwrap().count(), 2);
    let config = node(&sim, "dev/nvidia-caps/nvidia-cap1");
    assert_eq!(config, (major(&sim, "nvidia-caps"), 1));
}

/// As on a server without a screen: a program that wants CUDA has the module loaded.
#[test]
fn boot_leaves_uvm_to_modprobe() {
    let sim = Sim::new("--gpu H100");
    let nodes = ["dev/nvidia-uvm", "dev/nvidia-uvm-tools"];
    let are_there = || nodes.map(|node| sim.dir().join(node).exists());
    let lines = || {
        let is_its = |line: &&str| line.ends_with(" nvidia-uvm");
        sim.read("proc/devices").lines().filter(is_its).count()
    };
    let load = || {
        let mut program = std::process::Command::new(sim.dir().join("usr/bin/nvidia-modprobe"));
        program.args(["-u", "-c", "0"]).spawn().unwrap()
    };
    assert_eq!((lines(), are_there()), (1, [true; 2]));
    sim.run("reboot", "");
    assert_eq!((lines(), are_there()), (0, [false; 2]));
    for mut program in [load(), load(), load()] {
        assert!(program.wait().unwrap().success());
    }
    assert_eq!((lines(), are_there()), (1, [true; 2]));
    let major = major(&sim, "nvidia-uvm");
    assert_eq!(nodes.map(|at| node(&sim, at)), [(major, 0), (major, 1)]);
    std::fs::remove_file(sim.dir().join(nodes[0])).unwrap();
    assert!(load().wait().unwrap().success());
    assert_eq!((lines(), are_there()), (1, [true; 2]));
}
