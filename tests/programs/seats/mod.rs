//! Seats: shares of a MIG slice.

mod ending;
mod explain;
mod giving;
mod joining;
mod late;
mod mps;
mod records;
mod room;

use serde_json::Value;
use testkit::{Bundle, Low, Machine, Setup, unique};

const SLICE: &str = "runmig.dev/slice";
const SHARE: &str = "runmig.dev/share";
const NONE: &str = "sharing.enforcement = [\"none\"]";
/// The memory of a 3g.40gb of an A100-80GB, in MiB.
const MEMORY: u64 = 40_192;

/// A machine with so many A100 in MIG mode, with MPS.
fn machine(count: &str) -> Machine {
    Machine::with(&[
        "--gpu",
        "A100-80GB",
        "--count",
        count,
        "--mig",
        "on",
        "--mps",
    ])
}

/// One A100 with seats at a level.
fn on(low: Low, level: &str) -> Option<Setup> {
    let setup = Setup::on(low, machine("1"))?;
    setup.configure(&format!("sharing.enforcement = [\"{level}\"]"));
    Some(setup)
}

fn asking(setup: &Setup, slice: &str, size: &str) -> Bundle {
    let bundle = setup.bundle("exec sleep 1000");
    bundle.annotate(SLICE, slice);
    bundle.annotate(SHARE, size);
    bundle
}

/// Creates a container with a seat, and returns its id.
#[track_caller]
fn create(setup: &Setup, slice: &str, size: &str) -> String {
    let (id, bundle) = (unique(), asking(setup, slice, size));
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    id
}

#[track_caller]
fn delete(setup: &Setup, id: &str) {
    setup.runmig(&["delete", "--force", id]).ok();
}

/// Returns the line of a refused create, which changed nothing in its bundle.
#[track_caller]
fn refused(setup: &Setup, annotations: &[(&str, &str)]) -> String {
    let bundle = setup.bundle("true");
    for (key, value) in annotations {
        bundle.annotate(key, value);
    }
    let before = bundle.bytes();
    let line = setup
        .runmig(&["create", "-b", bundle.as_str(), &unique()])
        .refused();
    assert_eq!(bundle.bytes(), before);
    line
}

/// Returns the lease of a container.
#[track_caller]
fn lease(setup: &Setup, id: &str) -> Value {
    let leases = setup.leases();
    let found = leases.iter().find(|lease| lease["container"] == id);
    found.unwrap_or_else(|| panic!("{leases:?}")).clone()
}

/// Returns the UUID of the MIG device of a container.
#[track_caller]
fn device(setup: &Setup, id: &str) -> String {
    lease(setup, id)["migUUID"].as_str().unwrap().to_owned()
}
