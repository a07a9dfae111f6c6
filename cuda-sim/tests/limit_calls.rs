//! NVML's calls for memory limits by cgroup: sharing.md, "Limits by cgroup".

mod common;

use std::fs;
use std::path::Path;
use std::thread;

use common::cgroups::{Cgroup, enable_dmem, hierarchy};
use common::{Machine, Nvml, nvml_sim};

const GIB: u64 = 1 << 30;
const UNLIMITED: u64 = u64::MAX;
const SET: &str = "nvmlDeviceSetMemoryLimits_v1";
const GET: &str = "nvmlDeviceGetMemoryLimits_v1";
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NO_PERMISSION: u32 = 4;
const NOT_FOUND: u32 = 6;
const FUNCTION_NOT_FOUND: u32 = 13;

fn machine(args: &str) -> Machine {
    Machine::new(&format!("--gpu H100-80GB --mig off {args}"))
}

fn misc() -> Machine {
    machine("--driver 615")
}

fn dmem() -> Machine {
    machine("--driver 615 --limits dmem")
}

/// Returns the codes of setting and of reading.
fn codes(nvml: &Nvml, device: u64, cgroup: &Path) -> [u32; 2] {
    let set = nvml.set_limits(device, cgroup, [0, GIB]);
    [set, nvml.limits(device, cgroup).map_or_else(|c| c, |_| 0)]
}

/// Runs something as a user, in a thread of its own: the kernel knows a user for each thread.
fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let as_user = || {
        // SAFETY: the call has numbers for arguments and concerns this thread alone.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) };
        assert_eq!(result, 0);
        act()
    };
    thread::scope(|scope| scope.spawn(as_user).join().unwrap())
}

/// "none of the symbols exists in 580"; this library has them for every driver.
#[test]
fn older_drivers_lack_calls() {
    for branch in ["550", "580"] {
        let machine = machine(&format!("--driver {branch}"));
        let nvml = Nvml::open(&machine);
        let cgroup = Cgroup::new();
        let lacking = [FUNCTION_NOT_FOUND; 2];
        assert_eq!(codes(&nvml, nvml.gpu(), &cgroup), lacking);
        // That comes before every other check.
        assert_eq!(nvml.call(SET, [0; 3]), FUNCTION_NOT_FOUND);
        assert_eq!(nvml.call(GET, [0; 3]), FUNCTION_NOT_FOUND);
        let set = as_user(1000, || {
            let nvml = Nvml::open(&machine);
            nvml.set_limits(nvml.gpu(), &cgroup, [0, GIB])
        });
        assert_eq!(set, FUNCTION_NOT_FOUND);
    }
}

#[test]
fn older_drivers_have_no_backend() {
    for backend in ["dmem", "misc"] {
        let output = nvml_sim()
            .args(["new", "/nowhere/machine", "--gpu", "H100-80GB"])
            .args(["--limits", backend])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = "nvml-sim: driver 580 has no memory limits: add --driver 615\n";
        assert_eq!(said, expected);
    }
}

/// "reading where none is set answers 3".
#[test]
fn misc_answers_set_limits_only() {
    let machine = misc();
    let nvml = Nvml::open(&machine);
    let (gpu, cgroup) = (nvml.gpu(), Cgroup::new());
    let child = cgroup.child("below");
    assert_eq!(nvml.limits(gpu, &cgroup), Err(NOT_SUPPORTED));
    assert_eq!(nvml.set_limits(gpu, &cgroup, [GIB, 8 * GIB]), 0);
    assert_eq!(nvml.limits(gpu, &cgroup), Ok([GIB, 8 * GIB, 0]));
    assert_eq!(nvml.limits(gpu, &child), Err(NOT_SUPPORTED));
    assert_eq!(nvml.set_limits(gpu, &cgroup, [0, 4 * GIB + 1]), 0);
    assert_eq!(nvml.limits(gpu, &cgroup), Ok([0, 4 * GIB + 1, 0]));
    assert_eq!(nvml.set_limits(gpu, &cgroup, [0, UNLIMITED]), 0);
    assert_eq!(nvml.limits(gpu, &cgroup), Err(NOT_SUPPORTED));
}

/// "No limit: soft 0, hard 2⁶⁴−1".
#[test]
fn dmem_answers_without_limit() {
    let machine = dmem();
    enable_dmem(&machine, &[&hierarchy()]);
    let nvml = Nvml::open(&machine);
    let (gpu, cgroup) = (nvml.gpu(), Cgroup::new());
    assert_eq!(nvml.limits(gpu, &cgroup), Ok([0, UNLIMITED, 0]));
    let mut client = cgroup.client(&machine);
    assert_eq!(client.free(), 81079 - 516);
    assert_eq!(nvml.limits(gpu, &cgroup), Ok([0, UNLIMITED, 516 << 20]));
    assert_eq!(nvml.set_limits(gpu, &cgroup, [0, 8 * GIB]), 0);
    assert_eq!(nvml.limits(gpu, &cgroup), Ok([0, 8 * GIB, 516 << 20]));
    assert_eq!(nvml.set_limits(gpu, &cgroup, [0, UNLIMITED]), 0);
    assert_eq!(nvml.limits(gpu, &cgroup), Ok([0, UNLIMITED, 516 << 20]));
    drop(client);
}

/// "A cgroup without `dmem.*` files answers not found".
#[test]
fn dmem_needs_files() {
    let machine = dmem();
    let nvml = Nvml::open(&machine);
    let (gpu, parent) = (nvml.gpu(), Cgroup::new());
    let leaf = parent.child("leaf");
    let enabled = |cgroups: &[&Path]| {
        enable_dmem(&machine, cgroups);
        [&*parent, &*leaf].map(|cgroup| codes(&nvml, gpu, cgroup))
    };
    let (lacking, well) = ([NOT_FOUND; 2], [0; 2]);
    assert_eq!(enabled(&[]), [lacking, lacking]);
    assert_eq!(enabled(&[&hierarchy()]), [well, lacking]);
    assert_eq!(enabled(&[&hierarchy(), &parent]), [well, well]);
    // Every cgroup from the root down has to hand the controller down.
    assert_eq!(enabled(&[&parent]), [lacking, lacking]);
    fs::remove_file(machine.dir().join("dmem/enabled")).unwrap();
    assert_eq!(codes(&nvml, gpu, &parent), lacking);
}

#[test]
fn refuses_other_paths() {
    for machine in [misc(), dmem()] {
        let nvml = Nvml::open(&machine);
        let (gpu, cgroup) = (nvml.gpu(), Cgroup::new());
        let rows = [
            (Path::new("/tmp").to_path_buf(), NOT_SUPPORTED),
            (hierarchy(), NOT_SUPPORTED),
            (cgroup.join("missing"), NOT_FOUND),
            (cgroup.join("cgroup.procs"), NOT_FOUND),
            (Path::new("relative").to_path_buf(), INVALID_ARGUMENT),
            (Path::new("").to_path_buf(), INVALID_ARGUMENT),
        ];
        for (path, code) in rows {
            assert_eq!(codes(&nvml, gpu, &path), [code; 2], "{}", path.display());
        }
        for function in [SET, GET] {
            assert_eq!(nvml.call(function, [gpu, 0, 0]), INVALID_ARGUMENT);
            let nameless = [0, 0, GIB, 0_u64];
            let args = [gpu, nameless.as_ptr() as u64, 0];
            assert_eq!(nvml.call(function, args), INVALID_ARGUMENT);
        }
        let bad = nvml.set_limits(gpu, &cgroup, [GIB + 1, GIB]);
        assert_eq!(bad, INVALID_ARGUMENT);
    }
}

/// "Setting needs root, reading does not".
#[test]
fn setting_needs_root() {
    let machine = misc();
    let nvml = Nvml::open(&machine);
    let (gpu, cgroup) = (nvml.gpu(), Cgroup::new());
    assert_eq!(nvml.set_limits(gpu, &cgroup, [0, GIB]), 0);
    let (set, limits) = as_user(1000, || {
        let nvml = Nvml::open(&machine);
        let set = nvml.set_limits(gpu, &cgroup, [0, 2 * GIB]);
        (set, nvml.limits(gpu, &cgroup))
    });
    assert_eq!(set, NO_PERMISSION);
    assert_eq!(limits, Ok([0, GIB, 0]));
}

/// "MIG handles are refused", and so are GPUs in MIG mode.
#[test]
fn refuses_mig() {
    let machine = Machine::new("--gpu H100-80GB --driver 615");
    let created = nvml_sim()
        .arg("create")
        .arg(machine.dir())
        .args(["--gpu", "0", "--profile", "1g.10gb"])
        .output()
        .unwrap();
    assert!(created.status.success(), "{created:?}");
    let nvml = Nvml::open(&machine);
    let cgroup = Cgroup::new();
    for device in [nvml.gpu(), nvml.mig_device()] {
        assert_eq!(codes(&nvml, device, &cgroup), [NOT_SUPPORTED; 2]);
    }
    assert_eq!(codes(&nvml, 7, &cgroup), [INVALID_ARGUMENT; 2]);
}

/// "removing the cgroup removes the limit and leaves nothing behind".
#[test]
fn limit_ends_with_cgroup() {
    let machine = misc();
    let nvml = Nvml::open(&machine);
    let (gpu, cgroup) = (nvml.gpu(), Cgroup::new());
    assert_eq!(nvml.set_limits(gpu, &cgroup, [0, GIB]), 0);
    let mut client = cgroup.client(&machine);
    assert_eq!(client.ask("info"), "total 1024 free 508");
    client.kill();
    cgroup.renew();
    assert_eq!(nvml.limits(gpu, &cgroup), Err(NOT_SUPPORTED));
    let mut client = cgroup.client(&machine);
    assert_eq!(client.ask("info"), "total 81079 free 80563");
    client.kill();
    // The next call clears what is left of it.
    let other = Cgroup::new();
    assert_eq!(nvml.set_limits(gpu, &other, [0, GIB]), 0);
    let store = nvml_sim::state::Store::open(machine.dir()).unwrap();
    assert_eq!(store.load().unwrap().memory_limits.len(), 1);
}

/// A limit concerns one GPU.
#[test]
fn limits_each_gpu() {
    let machine = Machine::new("--gpu H100-80GB --count 2 --mig off --driver 615");
    let nvml = Nvml::open(&machine);
    let cgroup = Cgroup::new();
    assert_eq!(nvml.set_limits(nvml.gpu_at(1), &cgroup, [0, GIB]), 0);
    assert_eq!(nvml.limits(nvml.gpu_at(0), &cgroup), Err(NOT_SUPPORTED));
    assert_eq!(nvml.limits(nvml.gpu_at(1), &cgroup), Ok([0, GIB, 0]));
    let mut client = cgroup.client(&machine);
    assert_eq!(client.ask("info"), "total 81079 free 80563");
    client.kill();
}

#[test]
fn plans_faults_and_traces() {
    let machine = misc();
    let run = |args: &[&str]| {
        let (verb, rest) = args.split_first().unwrap();
        let mut command = nvml_sim();
        command.arg(verb).arg(machine.dir()).args(rest);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["fault", "--call", SET, "--nth", "1", "--returns", "UNKNOWN"]);
    let after = ["--returns", "TIMEOUT", "--after"];
    run(&[&["fault", "--call", SET, "--nth", "2"][..], &after].concat());
    run(&["fault", "--call", GET, "--nth", "2", "--returns", "15"]);
    run(&["trace", "on"]);
    let nvml = Nvml::open(&machine);
    let (gpu, cgroup) = (nvml.gpu(), Cgroup::new());
    assert_eq!(nvml.set_limits(gpu, &cgroup, [0, GIB]), 999);
    assert_eq!(nvml.limits(gpu, &cgroup), Err(NOT_SUPPORTED));
    assert_eq!(nvml.set_limits(gpu, &cgroup, [0, GIB]), 10);
    assert_eq!(nvml.limits(gpu, &cgroup), Err(15));
    assert_eq!(nvml.limits(gpu, &cgroup), Ok([0, GIB, 0]));
    let trace = run(&["trace", "show"]);
    let called = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let name = words.next().unwrap();
        [SET, GET]
            .contains(&name)
            .then(|| format!("{name} {}", words.last().unwrap()))
    };
    let calls: Vec<String> = trace.lines().filter_map(called).collect();
    let expected = [(SET, 999), (GET, 3), (SET, 10), (GET, 15), (GET, 0)];
    assert_eq!(calls, expected.map(|(name, code)| format!("{name} {code}")));
}

/// A boot ends all limits: cgroups do not live through one.
#[test]
fn reboot_ends_limits() {
    let machine = misc();
    let nvml = Nvml::open(&machine);
    let (gpu, cgroup) = (nvml.gpu(), Cgroup::new());
    assert_eq!(nvml.set_limits(gpu, &cgroup, [0, GIB]), 0);
    let booted = nvml_sim().arg("reboot").arg(machine.dir()).status();
    assert!(booted.unwrap().success());
    assert_eq!(nvml.limits(gpu, &cgroup), Err(NOT_SUPPORTED));
}
