//! The driver, its nodes, MIG and shares.

use super::breaking::{breaks, breaks_file, breaks_inside};
use super::{Diagnosis, setup};
use nvml_sim::engine::{Code, Unheld};
use testkit::prelude::*;

/// The cause of the others is the first line, in the words of a create.
#[test]
fn missing_driver_is_first() {
    let setup = setup();
    fs::remove_file(setup.machine.library()).unwrap();
    let seen = Diagnosis::of(&setup, &[]);
    assert_eq!(seen.items[0]["id"], "driver.library");
    let repair = "install the NVIDIA driver, or set driver.library to its libnvidia-ml.so.1";
    assert_eq!(seen.items[0]["repair"], repair);
    seen.has("fail", ["driver.library"]);
    let create = setup.try_create(&setup.asking("1g.10gb", "true"), "web");
    create.warns(seen.items[0]["text"].as_str().unwrap());
}

/// A library in which the loader does not find a function: its name is another one.
#[test]
fn names_missing_function() {
    let setup = setup();
    let library = setup.machine.library();
    let good = fs::read(&library).unwrap();
    // Only a create calls it, and no check does.
    let (name, other) = (
        b"\0nvmlGpuInstanceCreateComputeInstance\0",
        b"\0nvmlGpuInstanceCreateComputeInstancX\0",
    );
    let mut bad = good.clone();
    let places = { good.windows(name.len()).enumerate() }.filter(|(_, window)| *window == name);
    for (at, window) in places {
        bad[at..at + window.len()].copy_from_slice(other);
    }
    assert_ne!(bad, good);
    let write = |bytes: &[u8]| {
        fs::remove_file(&library).unwrap();
        fs::write(&library, bytes).unwrap();
    };
    let (broken, repaired) = (|| write(&bad), || write(&good));
    let (text, _) = breaks(&setup, "fail", "driver.library", broken, repaired);
    let lacks = "the library lacks nvmlGpuInstanceCreateComputeInstance";
    assert_eq!(text, lacks);
}

#[test]
fn names_lost_gpu() {
    let setup = setup();
    let lose = || setup.fault("nvmlDeviceGetMigMode", "GPU_IS_LOST");
    let mend = || setup.no_faults();
    let (text, _) = breaks(&setup, "fail", "driver.gpus", lose, mend);
    has(&text, "GPU is lost");
}

/// With the program, the first create makes what is missing.
fn without_modprobe(setup: &Setup) {
    fs::remove_file(setup.machine.dir().join("usr/bin/nvidia-modprobe")).unwrap();
}

#[test]
fn names_each_broken_node() {
    let setup = setup();
    without_modprobe(&setup);
    let dev = setup.machine.dir().join("dev");
    for (id, name) in [
        ("nodes.devices", "nvidiactl"),
        ("nodes.devices", "nvidia-uvm"),
        ("nodes.devices", "nvidia0"),
        ("nodes.mig", "nvidia-caps/nvidia-cap1"),
        ("nodes.mig", "nvidia-caps/nvidia-cap2"),
    ] {
        let (node, away) = (dev.join(name), dev.join("away"));
        let shown = node.display();
        let take = || fs::rename(&node, &away).unwrap();
        let put = || fs::rename(&away, &node).unwrap();
        let (text, repair) = breaks(&setup, "fail", id, take, put);
        begins_with(&text, &format!("cannot find {shown}"));
        assert_eq!(repair, "nvidia-modprobe -u -c 0");
        let file = || {
            take();
            fs::write(&node, "").unwrap();
        };
        let (text, _) = breaks(&setup, "fail", id, file, put);
        assert_eq!(text, format!("{shown} is not a device"));
        let number = || {
            take();
            said(Command::new("mknod").arg(&node).args(["c", "1", "3"])).ok();
        };
        let (text, _) = breaks(&setup, "fail", id, number, put);
        has(&text, "has the number 1:3");
        // A mount without devices: the node is there, with its number, and does not open.
        let bad = format!("mount --bind {shown} {shown}\nmount -o remount,bind,nodev {shown}");
        let (text, _) = breaks_inside(&setup, "fail", id, ["", &bad]);
        assert!(text.starts_with(&format!("cannot open {shown}")), "{text}");
    }
}

#[test]
fn names_missing_major() {
    let setup = setup();
    without_modprobe(&setup);
    let file = setup.machine.dir().join("proc/devices");
    let good = fs::read_to_string(&file).unwrap();
    let lines = good.lines().filter(|line| !line.ends_with("nvidia-uvm"));
    let bad: String = lines.map(|line| format!("{line}\n")).collect();
    let (_, repair) = breaks_file(&setup, "fail", "nodes.devices", &file, bad);
    has(&repair, "nvidia-uvm");
}

/// On Ampere a mode waits for the reset of its GPU.
#[test]
fn names_pending_mode() {
    let setup = Setup::with("--gpu A100-80GB --count 1 --mig off", "");
    let set = || {
        setup.machine.change(|machine| {
            let pending = machine.set_mig_mode(0, Mode::On, &Unheld).unwrap();
            assert_eq!(pending, Some(Code::RESET_REQUIRED));
        });
    };
    let reset = || drop(setup.sim("reset", &["--gpu", "0"]));
    let (text, repair) = breaks(&setup, "warn", "mig.mode", set, reset);
    begins_with(&text, "the MIG mode of GPU 0");
    assert_eq!(repair, "nvidia-smi --gpu-reset -i 0");
}

#[test]
fn names_foreign_instance() {
    let setup = setup();
    for more in [&[][..], &["--no-ci"]] {
        let make = [&["--gpu", "0", "--profile", "1g.10gb"], more].concat();
        let create = || drop(setup.sim("create", &make));
        let destroy = || {
            let gi = setup.machine.the_instance().gi.to_string();
            setup.sim("destroy", &["--gpu", "0", "--gi", &gi]);
        };
        let (text, repair) = breaks(&setup, "warn", "mig.foreign", create, destroy);
        begins_with(&text, "runmig did not make GPU instance");
        begins_with(&repair, "nvidia-smi mig -i 0 -gi ");
    }
}

/// Makes the repair that a check names: a command after the words `then`.
fn repair(setup: &Setup, id: &str) {
    let seen = Diagnosis::of(setup, &[&format!("--only={id}")]);
    let repair = seen.of_id(id).1;
    let command = repair.rsplit("then migctl ").next().unwrap();
    setup.migctl(&command.split(' ').collect::<Vec<_>>()).ok();
}

#[test]
fn names_slice_that_the_driver_lacks() {
    let setup = setup();
    setup.make("web", "1g.10gb");
    let gi = setup.machine.the_instance().gi.to_string();
    let lose = || {
        let destroy = ["--gpu", "0", "--gi", &gi, "--force"];
        let force = setup.machine.sim_command("destroy").args(destroy).output();
        if !force.unwrap().status.success() {
            setup.sim("destroy", &destroy[..4]);
        }
    };
    let end = || {
        setup.bare(&["delete", "--force", "web"]).output().unwrap();
        // The hook may have released it already.
        if !setup.leases().is_empty() {
            repair(&setup, "mig.records");
        }
    };
    let (text, _) = breaks(&setup, "fail", "mig.records", lose, end);
    assert!(text.contains("1g.10gb") && text.contains("web"), "{text}");
    setup.nothing_is_left();
}

#[test]
fn names_quarantined_slice() {
    let setup = setup();
    setup.make("web", "1g.10gb");
    let hold = || {
        setup.fault("nvmlGpuInstanceDestroy", "IN_USE");
        let _ = setup.command(&["delete", "--force", "web"]).output();
    };
    let free = || {
        setup.no_faults();
        repair(&setup, "mig.records");
    };
    let (text, _) = breaks(&setup, "fail", "mig.records", hold, free);
    has(&text, "1g.10gb");
    has(&text, "NVML 19");
    setup.nothing_is_left();
}

#[test]
fn names_machine_without_level() {
    let setup = setup();
    let with = |level: &str| {
        let keys = "mps_control = \"/nowhere/mps\"\nenforcement";
        setup.configure(&format!("[sharing]\n{keys} = [\"{level}\"]"));
    };
    with("none");
    let (broken, repaired) = (|| with("mps"), || with("none"));
    let (text, repair) = breaks(&setup, "warn", "sharing.levels", broken, repaired);
    has(&text, "(mps: ");
    has(&repair, "nvidia-cuda-mps-control");
}

/// Failure: a GPU does not come back after a reboot
#[test]
fn names_gpu_of_last_boot_that_is_missing() {
    let setup = Setup::with("--gpu A100-80GB --gpu L4", "");
    let lost = setup.machine.gpu_uuid(1);
    let id = setup.gives(&[("runmig.dev/slice", "1g.10gb")]);
    setup.ends(&[&id]);
    setup.migctl(&["gc"]).ok();
    let only = ["--only", "driver.missing"];
    assert!(Diagnosis::of(&setup, &only).ids("warn").is_empty());
    setup.machine.change(|machine| {
        machine.gpus.truncate(1);
        machine.reboot();
    });
    // Before the first collection of the boot, and after it.
    for _ in 0..2 {
        let (text, _) = Diagnosis::of(&setup, &only).of_id("driver.missing");
        let missing = format!("the driver no longer shows NVIDIA L4 ({lost})");
        assert_eq!(text, missing);
        setup.migctl(&["gc"]).ok();
    }
    setup.machine.change(|machine| machine.reboot());
    setup.migctl(&["gc"]).ok();
    assert!(Diagnosis::of(&setup, &only).ids("warn").is_empty());
}
