//! Seats: shares of a MIG slice.

mod ending;
mod explain;
mod giving;
mod joining;
mod late;
mod mps;
mod records;
mod room;

use testkit::prelude::*;

const SLICE: &str = "runmig.dev/slice";
const SHARE: &str = "runmig.dev/share";
const NONE: &str = "sharing.enforcement = [\"none\"]";
/// The memory of a 3g.40gb of an A100-80GB, in MiB.
const MEMORY: u64 = 40_192;

/// A machine with so many A100 in MIG mode, with MPS.
fn machine(count: &str) -> Machine {
    Machine::of(&format!("--gpu A100-80GB --count {count} --mig on --mps"))
}

/// One A100 with seats at a level.
fn on(low: Low, level: &str) -> Setup {
    let setup = Setup::on(low, machine("1"));
    setup.configure(&format!("sharing.enforcement = [\"{level}\"]"));
    setup
}

/// The same on runc, with more keys of the configuration.
fn with(level: &str, more: &str) -> Setup {
    let setup = on(Low::Runc, level);
    setup.configure(&format!("sharing.enforcement = [\"{level}\"]\n{more}"));
    setup
}

fn asking(setup: &Setup, slice: &str, size: &str) -> Bundle {
    setup.bundle_with(&[(SLICE, slice), (SHARE, size)])
}

/// Creates a container with a seat, and returns its id.
#[track_caller]
fn create(setup: &Setup, slice: &str, size: &str) -> String {
    setup.gives(&[(SLICE, slice), (SHARE, size)])
}

/// Returns the UUID of the MIG device of a container.
#[track_caller]
fn device(setup: &Setup, id: &str) -> String {
    setup.lease(id)["migUUID"].as_str().unwrap().to_owned()
}
