//! One thing is broken at a time.

use super::breaking::{breaks, ids};
use super::{Diagnosis, setup};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// The first failure of all groups is the cause of the others.
#[test]
fn missing_driver_is_first() {
    let Some(setup) = setup() else { return };
    fs::remove_file(setup.machine.library()).unwrap();
    let seen = Diagnosis::of(&setup, &[]);
    let first = seen
        .items
        .iter()
        .find(|item| item["status"] == "fail")
        .unwrap();
    assert_eq!(first["id"], "driver.library");
    assert_eq!(
        first["repair"],
        "install the NVIDIA driver, or set driver.library to its libnvidia-ml.so.1"
    );
    assert_eq!(seen.ids("fail"), ids(["driver.library"]));
}

#[test]
fn names_broken_configuration() {
    let Some(setup) = setup() else { return };
    let file = setup.config();
    let good = fs::read_to_string(&file).unwrap();
    let write = |text: &str| fs::write(&file, text).unwrap();
    let broken = format!("nonsense = 1\n{good}");
    let (text, _) = breaks(
        &setup,
        "configuration",
        "fail",
        "configuration.file",
        || write(&broken),
        || write(&good),
    );
    assert!(text.contains("nonsense"), "{text}");

    let absent = format!("{good}\n[policy]\nexclude_gpus = [7]\n");
    let (text, repair) = breaks(
        &setup,
        "configuration",
        "warn",
        "configuration.gpus",
        || write(&absent),
        || write(&good),
    );
    assert_eq!(text, "rules name GPUs that this machine lacks: 7");
    assert!(repair.starts_with("change exclude_gpus"), "{repair}");
}

#[test]
fn names_broken_low_level_runtime() {
    let Some(setup) = setup() else { return };
    let file = setup.config();
    let good = fs::read_to_string(&file).unwrap();
    let lines = good.lines().filter(|line| !line.starts_with("runtime"));
    let bad = format!(
        "runtime = \"/nowhere/runc\"\n{}\n",
        lines.collect::<Vec<_>>().join("\n")
    );
    let write = |text: &str| fs::write(&file, text).unwrap();
    let (text, _) = breaks(
        &setup,
        "programs",
        "fail",
        "programs.low-level-runtime",
        || write(&bad),
        || write(&good),
    );
    assert!(text.contains("/nowhere/runc"), "{text}");
}

#[test]
fn names_copy_on_path() {
    let Some(setup) = setup() else { return };
    let folder = setup.path("other");
    fs::create_dir(&folder).unwrap();
    fs::copy("/bin/true", folder.join("migctl")).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut migctl = setup.plain(&setup.program("migctl"));
    let ended = migctl
        .args(["doctor", "--only=programs"])
        .env("PATH", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let copy = format!(
        "other copies are on PATH: {}",
        folder.join("migctl").display()
    );
    assert!(said.contains(&copy), "{said}");
    let repair = format!("rm {}", folder.join("migctl").display());
    assert!(said.contains(&repair), "{said}");
}

#[test]
fn names_state_directory_of_others() {
    let Some(setup) = setup() else { return };
    let state = setup.state();
    fs::create_dir_all(&state).unwrap();
    let mode = |mode| fs::set_permissions(&state, Permissions::from_mode(mode)).unwrap();
    mode(0o700);
    let (text, repair) = breaks(
        &setup,
        "state",
        "fail",
        "state.folder",
        || mode(0o777),
        || mode(0o700),
    );
    assert!(text.contains("others than root can write to it"), "{text}");
    assert!(repair.contains("chmod go-w"), "{repair}");
    // The repair is a command.
    mode(0o777);
    assert!(
        Command::new("sh")
            .args(["-c", &repair])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(
        Diagnosis::of(&setup, &["--only=state"]).ids("fail"),
        ids([])
    );
}

#[test]
fn names_unreadable_record() {
    let Some(setup) = setup() else { return };
    let bundle = setup.asking("1g.10gb", "true");
    setup.runmig(&["create", "-b", bundle.as_str(), "web"]).ok();
    let leases = setup.state().join("leases");
    let record = fs::read_dir(leases)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let good = fs::read(&record).unwrap();
    let write = |bytes: &[u8]| fs::write(&record, bytes).unwrap();
    let (text, repair) = breaks(
        &setup,
        "state",
        "fail",
        "state.records",
        || write(b"x"),
        || write(&good),
    );
    assert!(text.contains(&record.display().to_string()), "{text}");
    assert!(repair.starts_with("migctl release "), "{repair}");
    setup.runmig(&["delete", "--force", "web"]).ok();
}

#[test]
fn names_other_module_version() {
    let Some(setup) = setup() else { return };
    let file = setup.machine.dir().join("proc/driver/nvidia/version");
    let good = fs::read_to_string(&file).unwrap();
    let version = setup.migctl(&["doctor", "--only=driver"]).ok().stdout;
    let version = version
        .split("is of version ")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .to_owned();
    let other = good.replace(&version, "550.1.2");
    let write = |text: &str| fs::write(&file, text).unwrap();
    let (text, repair) = breaks(
        &setup,
        "driver",
        "fail",
        "driver.module",
        || write(&other),
        || write(&good),
    );
    assert_eq!(
        text,
        format!("the kernel module is of version 550.1.2, and the library of version {version}")
    );
    assert!(repair.starts_with("reboot"), "{repair}");
}

#[test]
fn names_lost_gpu() {
    let Some(setup) = setup() else { return };
    let lose = || {
        drop(setup.machine.sim(
            "fault",
            &["--call", "nvmlDeviceGetMigMode", "--returns", "GPU_IS_LOST"],
        ))
    };
    let mend = || drop(setup.machine.sim("fault", &["--clear"]));
    let (text, _) = breaks(&setup, "driver", "fail", "driver.gpu", lose, mend);
    assert!(text.contains("GPU is lost"), "{text}");
}

#[test]
fn names_each_broken_node() {
    let Some(setup) = setup() else { return };
    let dev = setup.machine.dir().join("dev");
    for (id, name) in [
        ("nodes.nvidiactl", "nvidiactl"),
        ("nodes.nvidia-uvm", "nvidia-uvm"),
        ("nodes.gpu", "nvidia0"),
        ("nodes.config", "nvidia-caps/nvidia-cap1"),
        ("nodes.monitor", "nvidia-caps/nvidia-cap2"),
    ] {
        let (node, away) = (dev.join(name), dev.join("away"));
        let take = || fs::rename(&node, &away).unwrap();
        let put = || fs::rename(&away, &node).unwrap();
        let (text, repair) = breaks(&setup, "nodes", "fail", id, take, put);
        assert!(
            text.starts_with(&format!("cannot find {}", node.display())),
            "{text}"
        );
        assert_eq!(repair, "nvidia-modprobe -u -c 0");
        let file = || {
            take();
            fs::write(&node, "").unwrap();
        };
        let (text, _) = breaks(&setup, "nodes", "fail", id, file, put);
        assert_eq!(text, format!("{} is no device", node.display()));
        let number = || {
            take();
            let made = Command::new("mknod")
                .arg(&node)
                .args(["c", "1", "3"])
                .status();
            assert!(made.unwrap().success());
        };
        let (text, _) = breaks(&setup, "nodes", "fail", id, number, put);
        assert!(text.contains("has the number 1:3"), "{text}");
    }
}

#[test]
fn names_missing_major() {
    let Some(setup) = setup() else { return };
    let file = setup.machine.dir().join("proc/devices");
    let good = fs::read_to_string(&file).unwrap();
    let bad: String = good
        .lines()
        .filter(|line| !line.ends_with("nvidia-uvm"))
        .map(|line| format!("{line}\n"))
        .collect();
    let write = |text: &str| fs::write(&file, text).unwrap();
    let (_, repair) = breaks(
        &setup,
        "nodes",
        "fail",
        "nodes.majors",
        || write(&bad),
        || write(&good),
    );
    assert!(repair.contains("nvidia-uvm"), "{repair}");
}

#[test]
fn names_instances_that_differ() {
    let Some(setup) = setup() else { return };
    let create = || {
        drop(
            setup
                .machine
                .sim("create", &["--gpu", "0", "--profile", "1g.10gb"]),
        )
    };
    let destroy = || {
        let made = setup.machine.the_instance();
        setup
            .machine
            .sim("destroy", &["--gpu", "0", "--gi", &made.gi.to_string()]);
    };
    let (text, _) = breaks(&setup, "mig", "warn", "mig.foreign", create, destroy);
    assert!(
        text.starts_with("runmig did not make GPU instance"),
        "{text}"
    );
}

#[test]
fn names_empty_instance() {
    let Some(setup) = setup() else { return };
    let create = || {
        let empty = ["--gpu", "0", "--profile", "1g.10gb", "--no-ci"];
        drop(setup.machine.sim("create", &empty));
    };
    let destroy = || {
        let made = setup.machine.the_instance();
        let gi = made.gi.to_string();
        drop(setup.machine.sim("destroy", &["--gpu", "0", "--gi", &gi]));
    };
    let (text, repair) = breaks(&setup, "mig", "warn", "mig.empty", create, destroy);
    assert!(
        text.ends_with("has no compute instance, so no container can use it"),
        "{text}"
    );
    assert!(repair.starts_with("nvidia-smi mig -i 0 -gi "), "{repair}");
}

#[test]
fn names_machine_without_level() {
    let Some(setup) = setup() else { return };
    let file = setup.config();
    let base = fs::read_to_string(&file).unwrap();
    let good = format!("{base}\n[sharing]\nenforcement = [\"none\"]\n");
    let bad =
        format!("{base}\n[sharing]\nenforcement = [\"mps\"]\nmps_control = \"/nowhere/mps\"\n");
    let write = |text: &str| fs::write(&file, text).unwrap();
    write(&good);
    let (_, repair) = breaks(
        &setup,
        "sharing",
        "warn",
        "sharing.any-level",
        || write(&bad),
        || write(&good),
    );
    assert!(repair.contains("nvidia-cuda-mps-control"), "{repair}");
}
