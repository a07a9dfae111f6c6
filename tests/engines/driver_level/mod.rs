//! Shares at `driver`: the driver limits the memory of the container's cgroup.

mod choice;
mod early;
mod failures;
mod gaps;
mod holding;

use nvml_sim::engine::MemoryLimit;
use testkit::cgroup2;
use testkit::cuda::{self, Client};
use testkit::prelude::*;

const SHARE: &str = "runmig.dev/share";
/// The memory that a CUDA context takes of a share on an H100, in MiB.
const CONTEXT: u64 = 516;
const MIB: u64 = 1 << 20;

/// The keeper of limits: the driver itself, or the kernel's controller `dmem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    Misc,
    Dmem,
}

/// A machine with one H100 and driver 615.
fn machine(keeper: Keeper) -> Machine {
    let limits = format!("{keeper:?}").to_lowercase();
    let machine = format!("--gpu H100-80GB --mig off --driver 615 --limits {limits} --mps");
    let machine = Machine::of(&machine);
    // The root hands the controller down to the cgroups of containers.
    if keeper == Keeper::Dmem {
        fs::write(machine.dir().join("dmem/enabled"), "/\n").unwrap();
    }
    machine
}

/// A machine with cgroup v2, and runmig with its default levels.
fn on(low: Low, keeper: Keeper) -> Setup {
    cgroup2::enter();
    Setup::on(low, machine(keeper))
}

fn asking(setup: &Setup, size: &str) -> Bundle {
    setup.bundle_with(&[(SHARE, size)])
}

/// Starts a container with a share whose client takes commands.
fn client(setup: &Setup, size: &str) -> (String, Bundle, Client) {
    cuda::client(setup, &[(SHARE, size)])
}

/// Returns the driver's limits on cgroups that exist, each with its cgroup and its bytes.
fn limits(setup: &Setup) -> Vec<(String, u64)> {
    let machine = setup.machine.state();
    let exists = |limit: &&MemoryLimit| {
        let dir = format!("{}{}", cgroup2::ROOT, limit.cgroup);
        fs::metadata(dir).is_ok_and(|meta| meta.ino() == limit.inode)
    };
    { machine.memory_limits.iter() }
        .filter(exists)
        .map(|limit| {
            assert_eq!(limit.soft, 0);
            (limit.cgroup.clone(), limit.hard)
        })
        .collect()
}
