//! NVML's calls for memory limits by cgroup: sharing.md, "Limits by cgroup".

use std::path::Path;
use std::thread;

use crate::common::Nvml;
use crate::common::cgroups::{Cgroup, dmem, hierarchy, misc};

const GIB: u64 = 1 << 30;
const UNLIMITED: u64 = u64::MAX;
const SET: &str = "nvmlDeviceSetMemoryLimits_v1";
const GET: &str = "nvmlDeviceGetMemoryLimits_v1";
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NO_PERMISSION: u32 = 4;
const NOT_FOUND: u32 = 6;

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
