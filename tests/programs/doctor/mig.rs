//! MIG: the ledger against the driver, and obstacles to a change of the mode. Shares: their daemons.

use super::breaking::breaks;
use super::{Diagnosis, setup};
use nvml_sim::engine::{Code, Mode, Unheld};
use std::fs;
use testkit::process::{kill, until};
use testkit::{Low, Machine, Setup};

fn create(setup: &Setup, id: &str) {
    let bundle = setup.asking("1g.10gb", "true");
    setup.runmig(&["create", "-b", bundle.as_str(), id]).ok();
}

/// The repair is a command, after the words `then`.
fn then(setup: &Setup, repair: &str) {
    let command = repair.rsplit("then migctl ").next().unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    setup.migctl(&words).ok();
}

#[test]
fn names_slice_that_the_driver_lacks() {
    let Some(setup) = setup() else { return };
    create(&setup, "web");
    let gi = setup.machine.the_instance().gi.to_string();
    let (text, _) = breaks(
        &setup,
        "mig",
        "fail",
        "mig.missing",
        || {
            let destroy = ["--gpu", "0", "--gi", &gi, "--force"];
            let force = setup.machine.sim_command("destroy").args(destroy).output();
            if !force.unwrap().status.success() {
                setup.machine.sim("destroy", &destroy[..4]);
            }
        },
        || {
            let seen = Diagnosis::of(&setup, &["--only=mig.missing"]);
            let repair = seen.of_id("mig.missing").1;
            setup.bare(&["delete", "--force", "web"]).output().unwrap();
            // The hook may have released it already.
            if !setup.leases().is_empty() {
                then(&setup, &repair);
            }
        },
    );
    assert!(text.contains("1g.10gb") && text.contains("web"), "{text}");
    setup.nothing_is_left();
}

#[test]
fn names_quarantined_slice() {
    let Some(setup) = setup() else { return };
    create(&setup, "web");
    let busy = ["--call", "nvmlGpuInstanceDestroy", "--returns", "IN_USE"];
    let (text, _) = breaks(
        &setup,
        "mig",
        "fail",
        "mig.quarantined",
        || {
            setup.machine.sim("fault", &busy);
            let _ = setup.command(&["delete", "--force", "web"]).output();
        },
        || {
            let seen = Diagnosis::of(&setup, &["--only=mig.quarantined"]);
            setup.machine.sim("fault", &["--clear"]);
            then(&setup, &seen.of_id("mig.quarantined").1);
        },
    );
    assert!(
        text.contains("1g.10gb") && text.contains("NVML 19"),
        "{text}"
    );
    setup.nothing_is_left();
}

/// On Ampere a mode waits for the reset of its GPU.
#[test]
fn names_pending_mode() {
    let machine = Machine::with(&["--gpu", "A100-80GB", "--count", "1", "--mig", "off"]);
    let Some(setup) = Setup::on(Low::Runc, machine) else {
        return;
    };
    let set = || {
        let store = nvml_sim::state::Store::open(&setup.machine.dir()).unwrap();
        let mut locked = store.lock().unwrap();
        let pending = locked.machine.set_mig_mode(0, Mode::On, &Unheld).unwrap();
        assert_eq!(pending, Some(Code::RESET_REQUIRED));
        locked.commit(None, false).unwrap();
    };
    let reset = || drop(setup.machine.sim("reset", &["--gpu", "0"]));
    let (text, repair) = breaks(&setup, "mig", "warn", "mig.mode", set, reset);
    assert!(text.starts_with("the MIG mode of GPU 0"), "{text}");
    assert_eq!(repair, "nvidia-smi --gpu-reset -i 0");
    let seen = Diagnosis::of(&setup, &["--only=mig.mode"]);
    let text = seen.items[0]["text"].as_str().unwrap();
    assert!(text.ends_with("is in MIG mode"), "{text}");
}

#[test]
fn names_obstacles_to_mode_change() {
    let machine = Machine::with(&["--gpu", "A100-80GB", "--count", "1", "--mig", "off"]);
    let Some(setup) = Setup::on(Low::Runc, machine) else {
        return;
    };
    let root = setup.machine.dir();
    let drm = root.join("sys/module/nvidia_drm");
    let modeset = || {
        fs::create_dir_all(drm.join("parameters")).unwrap();
        fs::write(drm.join("parameters/modeset"), "Y\n").unwrap();
    };
    let unload = || fs::remove_dir_all(&drm).unwrap();
    let id = "mig.obstacles";
    let (text, repair) = breaks(&setup, "mig", "warn", id, modeset, unload);
    assert!(
        text.starts_with("nvidia_drm is loaded with modeset"),
        "{text}"
    );
    assert!(repair.starts_with("modprobe -r nvidia_drm"), "{repair}");

    let listed = setup.migctl(&["gpus", "-o", "json"]).ok().json();
    let bus = listed["items"][0]["pciBusID"]
        .as_str()
        .unwrap()
        .to_lowercase();
    let card = root.join("sys/bus/pci/devices").join(&bus[4..]).join("drm");
    let connector = card.join("card1/card1-DP-1");
    let plug = || {
        fs::create_dir_all(&connector).unwrap();
        fs::write(connector.join("enabled"), "enabled\n").unwrap();
    };
    let unplug = || fs::write(connector.join("enabled"), "disabled\n").unwrap();
    let (text, _) = breaks(&setup, "mig", "warn", id, plug, unplug);
    assert!(text.contains("drives a display at card1-DP-1"), "{text}");
    // A GPU in MIG mode has nothing left to change.
    plug();
    setup.machine.sim("mig", &["--gpu", "0", "on"]);
    let seen = Diagnosis::of(&setup, &["--only=mig.obstacles"]);
    assert_eq!(seen.ids("ok").len(), 1, "{:?}", seen.items);
}

#[test]
fn names_ended_daemon() {
    let Some(setup) = Setup::on(
        Low::Runc,
        Machine::with(&["--gpu", "L4", "--mig", "off", "--mps"]),
    ) else {
        return;
    };
    setup.configure("sharing.enforcement = [\"mps\"]");
    let bundle = setup.bundle("exec sleep 1000");
    bundle.annotate("runmig.dev/share", "4Gi");
    setup.runmig(&["create", "-b", bundle.as_str(), "web"]).ok();
    setup.runmig(&["start", "web"]).ok();
    until("the share is ready", || {
        setup.the_lease()["state"] == "ready"
    });
    let pid = || setup.the_lease()["daemon"]["pid"].as_i64().unwrap() as i32;
    let (text, repair) = breaks(
        &setup,
        "sharing",
        "fail",
        "sharing.daemons",
        || kill(pid()),
        || drop(setup.migctl(&["gc"]).ok()),
    );
    assert!(
        text.starts_with("the MPS daemon on GPU 0 of") && text.contains("web"),
        "{text}"
    );
    assert!(repair.starts_with("migctl gc"), "{repair}");
    setup.runmig(&["delete", "--force", "web"]).ok();
    setup.nothing_is_left();
}
