//! The driver's nodes in a container: those that CUDA needs, and the others where the host has them.

use testkit::prelude::*;

type Nodes = BTreeMap<String, (u32, u32)>;

const GPU: [&str; 4] = ["--gpu", "A100-80GB", "--count", "1"];

fn setup(more: &[&str]) -> Setup {
    Setup::on(Low::Runc, Machine::with(&[&GPU, more].concat()))
}

#[track_caller]
fn seen(setup: &Setup) -> Nodes {
    let bundle = setup.asking("1g.10gb", SHOW);
    let ran = setup.try_run(&bundle);
    nodes(&ran.ok().stdout)
}

fn remove(setup: &Setup, node: &str) {
    fs::remove_file(setup.machine.dir().join("dev").join(node)).unwrap();
}

/// Failure: the host has no `/dev/nvidia-modeset` (no display) or no `/dev/nvidia-uvm-tools`
#[test]
fn grants_optional_nodes_the_host_has() {
    let headless = setup(&[]);
    let without_display = seen(&headless);
    assert!(!without_display.contains_key("nvidia-modeset"));
    assert!(without_display.contains_key("nvidia-uvm-tools"));
    remove(&headless, "nvidia-uvm-tools");
    assert!(!seen(&headless).contains_key("nvidia-uvm-tools"));

    let with_display = seen(&setup(&["--modeset"]));
    assert_eq!(with_display["nvidia-modeset"], (195, 254));
    let mut others = with_display;
    others.remove("nvidia-modeset");
    assert!(others.keys().eq(without_display.keys()), "{others:?}");
}

fn in_user_namespace(setup: &Setup) -> Bundle {
    let bundle = setup.asking("1g.10gb", SHOW);
    bundle.shift_ids();
    bundle
}

/// Runs the bundle where the simulated machine's nodes are the host's.
fn run_on_its_dev(setup: &Setup, bundle: &Bundle) -> Said {
    said(&mut setup.on_its_dev(&["run", "-b", bundle.as_str(), &unique()]))
}

#[test]
fn user_namespace_needs_no_optional_node() {
    let setup = setup(&[]);
    let bundle = in_user_namespace(&setup);
    let granted = nodes(&run_on_its_dev(&setup, &bundle).ok().stdout);
    assert!(granted.contains_key("nvidia-uvm-tools"), "{granted:?}");

    // The host's node is for root alone: the container goes without it.
    let tools = setup.machine.dir().join("dev/nvidia-uvm-tools");
    chmod(&tools, 0o600);
    let mut expected = granted;
    expected.remove("nvidia-uvm-tools");
    for _ in 0..2 {
        let granted = nodes(&run_on_its_dev(&setup, &bundle).ok().stdout);
        assert!(granted.keys().eq(expected.keys()), "{granted:?}");
        let _ = fs::remove_file(&tools);
    }
    setup.nothing_is_left();
}

/// A machine on which nothing makes what is missing.
fn without_modprobe() -> Setup {
    let setup = setup(&[]);
    fs::remove_file(setup.machine.dir().join("usr/bin/nvidia-modprobe")).unwrap();
    setup
}

#[test]
fn names_missing_required_node() {
    let setup = without_modprobe();
    let bundle = in_user_namespace(&setup);
    for node in ["nvidiactl", "nvidia-uvm", "nvidia0"] {
        let away = setup.path("away");
        fs::rename(setup.machine.dir().join("dev").join(node), &away).unwrap();
        let line = run_on_its_dev(&setup, &bundle).refused();
        has(&line, &format!("/dev/{node} ("));
        has(&line, "nvidia-modprobe -u -c 0");
        fs::rename(&away, setup.machine.dir().join("dev").join(node)).unwrap();
    }
    setup.nothing_is_left();
}

/// Failure: a driver that CUDA needs is not loaded, or a container in a user namespace needs a node that the host lacks
#[test]
fn names_missing_driver() {
    let setup = without_modprobe();
    let bundle = setup.asking("1g.10gb", "true");
    let file = setup.machine.dir().join("proc/devices");
    let devices = fs::read_to_string(&file).unwrap();
    for (driver, remedy) in [
        ("nvidia-uvm", "nvidia-modprobe -u -c 0"),
        ("nvidia-caps", "modprobe nvidia"),
    ] {
        let without = devices.lines().filter(|line| {
            let name = line.split_whitespace().nth(1);
            name != Some(driver)
        });
        fs::write(&file, without.collect::<Vec<_>>().join("\n")).unwrap();
        let line = setup.try_run(&bundle).refused();
        has(&line, &format!("cannot find the driver {driver}: "));
        ends_with(&line, remedy);
    }
    fs::write(&file, devices).unwrap();
    setup.nothing_is_left();
}
