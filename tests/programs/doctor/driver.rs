//! The driver's library, and the device nodes.

use super::breaking::{breaks, breaks_inside, ids};
use super::{Diagnosis, setup};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Moves a device node, also between file systems.
fn mv(from: &Path, to: &Path) {
    let status = Command::new("mv").arg(from).arg(to).status();
    assert!(status.unwrap().success());
}

/// A library in which the loader does not find a function: its name is another one.
#[test]
fn names_missing_function() {
    let Some(setup) = setup() else { return };
    let library = setup.machine.library();
    let good = fs::read(&library).unwrap();
    // Only a create calls it, and no check does.
    let (name, other) = (
        b"\0nvmlGpuInstanceCreateComputeInstance\0",
        b"\0nvmlGpuInstanceCreateComputeInstancX\0",
    );
    let mut bad = good.clone();
    let places: Vec<usize> = { good.windows(name.len()).enumerate() }
        .filter(|(_, window)| *window == name)
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty());
    for at in places {
        bad[at..at + name.len()].copy_from_slice(other);
    }
    let write = |bytes: &[u8]| {
        fs::remove_file(&library).unwrap();
        fs::write(&library, bytes).unwrap();
    };
    let (text, repair) = breaks(
        &setup,
        "driver",
        "fail",
        "driver.functions",
        || write(&bad),
        || write(&good),
    );
    assert_eq!(
        text,
        "the library lacks nvmlGpuInstanceCreateComputeInstance"
    );
    assert!(repair.starts_with("install a driver"), "{repair}");
}

#[test]
fn names_slow_session() {
    let Some(setup) = setup() else { return };
    let slow = ["--call", "nvmlInit_v2", "--takes", "1100ms"];
    let (text, repair) = breaks(
        &setup,
        "driver",
        "warn",
        "driver.session",
        || drop(setup.machine.sim("fault", &slow)),
        || drop(setup.machine.sim("fault", &["--clear"])),
    );
    assert!(text.ends_with("so each create does too"), "{text}");
    assert_eq!(repair, "nvidia-smi -pm 1");
}

#[test]
fn names_missing_rights() {
    let Some(setup) = setup() else { return };
    let mut other = setup.plain("setpriv".as_ref());
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let seen = Diagnosis::by(
        other.arg(setup.program("migctl")),
        &["--only=driver.rights"],
    );
    assert_eq!(seen.ids("fail"), ids(["driver.rights"]));
    assert_eq!(seen.of_id("driver.rights").1, "sudo migctl doctor");
    let repaired = Diagnosis::of(&setup, &["--only=driver.rights"]);
    assert_eq!(repaired.ids("ok"), ids(["driver.rights"]));
}

/// A mount without devices: each node is there, with its number, and does not open.
#[test]
fn names_node_that_does_not_open() {
    let Some(setup) = setup() else { return };
    let dev = setup.machine.dir().join("dev");
    for (id, name) in [
        ("nodes.nvidiactl", "nvidiactl"),
        ("nodes.nvidia-uvm", "nvidia-uvm"),
        ("nodes.optional", "nvidia-uvm-tools"),
        ("nodes.gpu", "nvidia0"),
        ("nodes.config", "nvidia-caps/nvidia-cap1"),
    ] {
        let node = dev.join(name);
        let node = node.display();
        let bad = format!("mount --bind {node} {node}\nmount -o remount,bind,nodev {node}");
        let (text, _) = breaks_inside(&setup, "nodes", "fail", id, ["", &bad]);
        assert!(text.starts_with(&format!("cannot open {node}")), "{text}");
    }
}

#[test]
fn names_missing_node_of_profilers() {
    let Some(setup) = setup() else { return };
    let node = setup.machine.dir().join("dev/nvidia-uvm-tools");
    let away = setup.path("away");
    let (text, repair) = breaks(
        &setup,
        "nodes",
        "warn",
        "nodes.optional",
        || fs::rename(&node, &away).unwrap(),
        || mv(&away, &node),
    );
    assert!(text.starts_with(node.to_str().unwrap()), "{text}");
    assert_eq!(repair, "nvidia-modprobe -u -c 0");
}

#[test]
fn names_missing_node_of_slice() {
    let Some(setup) = setup() else { return };
    let bundle = setup.asking("1g.10gb", "true");
    setup.runmig(&["create", "-b", bundle.as_str(), "web"]).ok();
    let instance = setup.machine.the_instance();
    let nodes = setup.machine.nodes_of(&instance);
    let node = { nodes.keys() }.find(|path| path.contains("caps")).unwrap();
    let node = setup.machine.dir().join("dev").join(node);
    let away = setup.path("away");
    let (text, _) = breaks(
        &setup,
        "nodes",
        "fail",
        "nodes.instance",
        || mv(&node, &away),
        || mv(&away, &node),
    );
    assert!(
        text.starts_with(&format!("cannot find {}", node.display())),
        "{text}"
    );
    setup.runmig(&["delete", "--force", "web"]).ok();
}
