//! `migctl apply` changes MIG modes, on GPUs that nothing uses.

use crate::layouts::holds::{SlowReset, replace_smi};
use crate::layouts::leases::{records, there};
use crate::layouts::ours::Ours;
use nvml_sim::engine::{Code, Target};
use nvml_sim::holders;
use nvml_sim::state::Store;
use testkit::prelude::*;

pub const ON: &str = r#"{"devices": [1], "mig-enabled": true, "mig-devices": {"1g.6gb": 2}}"#;
pub const OFF: &str = r#"{"devices": [0], "mig-enabled": false}"#;
const ONE: &str = r#"{"devices": [0], "mig-enabled": true, "mig-devices": {"1g.6gb": 1}}"#;
const GPU: &[(&str, &str)] = &[("runmig.dev/gpu", "1")];

/// Two GPUs of the Ampere family, the second with MIG off.
pub fn world() -> World {
    let world = World::of(SMALL, 2);
    world.switch_mig_off(1);
    world
}

pub fn modes(world: &World) -> Vec<Mode> {
    world.engine().gpus.iter().map(|gpu| gpu.mode).collect()
}

/// A verb with a layout of these entries.
pub fn migctl(world: &World, verb: &str, entries: &str) -> Command {
    let file = world.path("layout.json");
    let text = format!(r#"{{"version": "v1", "mig-configs": {{"wanted": [{entries}]}}}}"#);
    fs::write(&file, text).unwrap();
    world.migctl(&[verb, "-f", file.to_str().unwrap()])
}

pub fn apply(world: &World, entries: &str) -> Command {
    migctl(world, "apply", entries)
}

#[track_caller]
fn refused(world: &World, entry: &str, words: &[&str]) {
    let before = (records(world), there(world), modes(world));
    let line = said(&mut apply(world, entry)).refused();
    words.iter().for_each(|word| has(&line, word));
    has(&line, "nothing has changed");
    assert_eq!((records(world), there(world), modes(world)), before);
}

/// From Hopper on, the new mode is in force at once.
#[test]
fn switches_mode_where_it_differs() {
    let machine = Machine::with(&["--gpu", "H100-80GB", "--gpu", "H100-80GB"]);
    machine.sim("mig", &["--gpu", "1", "off"]);
    let ours = Ours::on(machine);
    let text = "version: v1\nmig-configs:\n  two:\n  - devices: all\n    mig-enabled: true\n    \
        mig-devices: {1g.10gb: 2}\n  none:\n  - devices: [0]\n    mig-enabled: false\n";
    let file = ours.file(text);
    let apply = |name, more: &[&str]| ours.apply(&file, &[&["-c", name], more].concat());
    let dry = apply("two", &["--dry-run", "-o", "json"]).ok().json();
    assert_eq!(dry["modes"][0]["gpuIndex"], 1, "{dry}");
    assert_eq!(dry["modes"][0]["migEnabled"], true);
    assert_eq!(dry["items"].as_array().unwrap().len(), 4);
    apply("two", &["--dry-run"]).ok().says("mig-on");

    nvml_sim::trace::on(&ours.machine.dir()).unwrap();
    let said = apply("two", &[]).ok();
    assert_eq!(said.stdout, "layout two is applied\n");
    let calls = nvml_sim::trace::read(&ours.machine.dir()).unwrap();
    assert_eq!(calls.matches("nvmlDeviceSetMigMode").count(), 1);
    ours.assert(&file, &["-c", "two"]).ok();

    // Its two instances go first.
    apply("none", &[]).ok();
    let said = ours.assert(&file, &["-c", "none"]).exits(1);
    assert_eq!(said.stderr, "migctl: GPU 1: no entry names it\n");
    let state = ours.machine.state();
    let left: Vec<usize> = state.gpus.iter().map(|g| g.gpu_instances.len()).collect();
    assert_eq!(left, [0, 2]);
    assert_eq!(state.gpus[0].mode, Mode::Off);
}

#[test]
fn resets_gpus_with_new_mode_alone() {
    let world = world();
    world.install_smi();
    world.create("train");
    let before = world.the_instance();
    said(&mut apply(&world, ON)).ok();
    assert_eq!(modes(&world), [Mode::On, Mode::On]);
    let instances = world.instances();
    assert!(instances.contains(&before));
    assert_eq!(instances.iter().filter(|i| i.gpu == 1).count(), 2);
    world.has_its_slices("train").unwrap();
    // The records that held the GPU are gone.
    assert_eq!(records(&world).len(), 2 + 2);
}

/// Failure: a new MIG mode needs a reset, and `nvidia-smi` is missing, is not root's alone, or refuses
#[test]
fn names_command_for_pending_mode() {
    let world = world();
    let command = "nvidia-smi --gpu-reset -i 1";
    let pending = |said: Said, why: &str| {
        let line = said.refused();
        has(&line, command);
        has(&line, why);
        assert_eq!(mode_of_second(&world), (Mode::Off, Mode::On));
        assert_eq!(records(&world).len(), 0);
    };
    let apply = |more: &[&str]| said(apply(&world, ON).args(more));
    pending(apply(&[]), "usr/bin/nvidia-smi");
    pending(apply(&["--skip-reset"]), "--skip-reset is given");
    world.install_smi();
    let program = world.machine().join("usr/bin/nvidia-smi");
    chmod(&program, 0o777);
    pending(apply(&[]), "users other than root can write to it");
    chmod(&program, 0o755);
    // The second run goes on from there.
    apply(&[]).ok();
    assert_eq!(modes(&world), [Mode::On, Mode::On]);
}

/// Failure: a layout needs another MIG mode of a GPU in use
#[test]
fn refuses_mode_of_gpu_in_use() {
    let world = world();
    world.install_smi();
    world.create("train");
    refused(&world, OFF, &["container train has 1g.6gb at "]);
    world.configure("sharing.enforcement = [\"none\"]");
    for (kind, ask) in [("gpu", "1"), ("share", "1/2")] {
        world.create_saying(kind, &[(&format!("runmig.dev/{kind}"), ask)]);
        let words = format!("container {kind} has GPU 1, whose MIG mode");
        refused(&world, ON, &[&words]);
        world.delete(kind);
    }
    let target = Target {
        gpu: 1,
        gi: None,
        ci: None,
    };
    let store = Store::open(&world.machine()).unwrap();
    let held = holders::hold(&store, target, 1 << 20).unwrap();
    let process = format!("process {} has GPU 1", std::process::id());
    refused(&world, ON, &[&process]);
    drop(held);
}

/// Failure: the driver refuses a new MIG mode
#[test]
fn tells_busy_driver() {
    let world = world();
    world.install_smi();
    let busy = Code::IN_USE.0;
    for outcome in [Outcome::Return(busy), Outcome::ActivationStatus(busy)] {
        world.fault("nvmlDeviceSetMigMode", 1, Some(1), outcome);
        let line = said(&mut apply(&world, ON)).refused();
        has(&line, "in use by another client (NVML 19)");
        has(&line, "end what uses GPU 1");
        world.no_faults();
        assert_eq!(modes(&world), [Mode::On, Mode::Off]);
        assert_eq!(records(&world).len(), 0);
    }
}

#[test]
fn no_create_gets_gpu_meanwhile() {
    let world = world();
    world.install_smi();
    world.takes("nvmlDeviceSetMigMode", 2_000);
    let mut applying: Going = going(&mut apply(&world, ON));
    until("the GPU is held", || {
        !records(&world).is_empty() || applying.ended().is_some()
    });
    let line = world.refuses_saying("whole", GPU, "");
    lacks(&line, "GPU 1 is free");
    applying.end().ok();
    assert_eq!(modes(&world), [Mode::On, Mode::On]);
}

/// Failure: `apply` dies while it switches MIG on or off
#[test]
fn killed_change_leaves_no_record() {
    let world = world();
    world.install_smi();
    for moment in [Moment::Before, Moment::After] {
        let apply = &mut apply(&world, ON);
        world.kills("nvmlDeviceSetMigMode", moment, apply);
        assert_eq!(records(&world).len(), 1);
        world.gc().ok();
        assert_eq!(records(&world).len(), 0);
    }
    said(&mut apply(&world, ON)).ok();
}

/// Failure: two applies at once
#[test]
fn second_apply_sees_change() {
    let world = world();
    let (slow, first) = halts(&world, OFF);
    said(&mut apply(&world, ONE)).refused_for("another apply has GPU 0");
    slow.go_on();
    first.end().ok();
    assert_eq!(modes(&world), [Mode::Off, Mode::Off]);
    assert_eq!((there(&world).len(), records(&world).len()), (0, 0));
    said(&mut apply(&world, ONE)).ok();
}

/// Starts an apply, which waits with its reset.
fn halts(world: &World, entry: &str) -> (SlowReset, Going) {
    let slow = SlowReset::install(world);
    let applying = going(&mut apply(world, entry));
    slow.until_started();
    (slow, applying)
}

#[test]
fn hold_lasts_as_long_as_reset() {
    let world = world();
    let (slow, applying) = halts(&world, OFF);
    applying.kill();
    world.gc();
    assert_eq!(records(&world).len(), 1);
    world.refuses("train", "");
    slow.go_on();
    until("the hold is gone", || {
        world.gc();
        records(&world).is_empty()
    });
    assert_eq!(modes(&world), [Mode::Off, Mode::Off]);
}

/// Failure: the next reset of a GPU switches MIG off
#[test]
fn ending_mig_takes_no_lease() {
    let world = world();
    said(apply(&world, OFF).arg("--skip-reset")).refused();
    world.refuses("train", "its next reset switches MIG off");
    let promise = said(&mut world.claims("promise", "uid"));
    promise.refused_for("the next reset of GPU 0 switches MIG off");
    said(&mut apply(&world, ONE)).refused_for("nvidia-smi -i 0 -mig 1");
    world.change(|machine, holds| machine.set_mig_mode(0, Mode::On, holds).unwrap());
    world.create("train");
}

/// A container may come to a GPU that has the goal already.
#[test]
fn other_gpus_change_beside_new_mode() {
    let world = world();
    let both = format!(r#"{{"devices": [0], "mig-enabled": true, "mig-devices": {{}}}}, {ON}"#);
    let (slow, applying) = halts(&world, &both);
    world.create("train");
    slow.go_on();
    applying.end().ok();
    world.has_its_slices("train").unwrap();
    let on = |gpu| world.instances().iter().filter(|i| i.gpu == gpu).count();
    assert_eq!((on(0), on(1)), (1, 2));
}

/// Failure: the driver refuses the mode of one GPU, and another one waits for a reset
#[test]
fn refused_gpu_hides_no_pending_one() {
    let world = world();
    world.switch_mig_off(0);
    let busy = Outcome::Return(Code::IN_USE.0);
    world.fault("nvmlDeviceSetMigMode", 2, Some(2), busy);
    let all = r#"{"devices": "all", "mig-enabled": true, "mig-devices": {}}"#;
    let line = said(&mut apply(&world, all)).refused();
    has(&line, "end what uses GPU 1");
    has(&line, "nvidia-smi --gpu-reset -i 0");
}

#[test]
fn mode_that_goes_is_no_layout() {
    let world = world();
    let on = r#"{"devices": [0], "mig-enabled": true, "mig-devices": {}}"#;
    let entries = format!(r#"{on}, {{"devices": [1], "mig-enabled": false}}"#);
    let assert = || said(&mut migctl(&world, "assert", &entries));
    assert().ok();
    world.change(|machine, _| machine.gpus[0].pending = Mode::Off);
    let differs = assert().exits(1);
    differs.warns("GPU 0: its next reset switches MIG off");
}

#[test]
fn limits_leave_out_gpu_that_changes() {
    let world = World::with_whole_gpus();
    world.configure("[[policy.limit]]\ngpus = 1\n");
    let (slow, applying) = halts(&world, OFF);
    world.create_saying("whole", GPU);
    slow.go_on();
    applying.end().ok();
}

/// A machine whose `nvidia-smi` cannot reset GPUs, and notes each try in the file.
fn without_reset() -> (World, PathBuf) {
    let world = world();
    world.change(|machine, _| machine.no_reset = true);
    let tries = world.path("tries");
    let notes = format!("echo >>{}", tries.display());
    replace_smi(&world, |reset| format!("{notes}\nexec {reset}"));
    (world, tries)
}

fn mode_of_second(world: &World) -> (Mode, Mode) {
    let gpu = &world.engine().gpus[1];
    (gpu.mode, gpu.pending)
}

/// Failure: a new MIG mode needs a reset, which the machine does not support
#[test]
fn sets_mode_back_without_reset() {
    let (world, tries) = without_reset();
    let line = said(&mut apply(&world, ON)).refused();
    for words in ["not supported", "a reboot is needed", "--pending"] {
        has(&line, words);
    }
    assert_eq!(mode_of_second(&world), (Mode::Off, Mode::Off));
    assert_eq!(fs::read_to_string(&tries).unwrap(), "\n", "one try");
    world.create_saying("whole", GPU);
}

/// Failure: a new MIG mode cannot be set back
#[test]
fn tells_mode_that_stays_pending() {
    let (world, _) = without_reset();
    let lost = Outcome::Return(Code::GPU_IS_LOST.0);
    world.fault("nvmlDeviceSetMigMode", 2, Some(2), lost);
    let line = said(&mut apply(&world, ON)).refused();
    has(&line, "a reboot is needed");
    has(&line, "switch MIG off on GPU 1");
}

#[test]
fn pending_mode_waits_for_reboot() {
    let (world, _) = without_reset();
    said(apply(&world, ON).arg("--pending")).refused_for("hint: reboot, and apply again");
    assert_eq!(mode_of_second(&world), (Mode::Off, Mode::On));
    world.change(|machine, _| machine.reboot());
    said(&mut apply(&world, ON)).ok();
    assert_eq!(mode_of_second(&world), (Mode::On, Mode::On));
    assert_eq!(world.instances().iter().filter(|i| i.gpu == 1).count(), 2);
}

/// Failure: a program or a display keeps a GPU from its reset
#[test]
fn names_what_blocks_reset() {
    // Without its program no reset is tried.
    let world = world();
    said(&mut apply(&world, ON)).refused_for("hint: run nvidia-smi --gpu-reset -i 1");
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_PATH);
    let _held = options.open(world.machine().join("dev/nvidia1")).unwrap();
    let modules = "nvidia_drm 131072 3 - Live 0x0000000000000000\n";
    fs::write(world.machine().join("proc/modules"), modules).unwrap();
    let line = said(&mut apply(&world, ON)).refused();
    let process = format!("hint: end process {} ", std::process::id());
    has(&line, &process);
    let after = " and what displays by the module nvidia_drm, then run nvidia-smi --gpu-reset -i 1";
    has(&line, after);
}
