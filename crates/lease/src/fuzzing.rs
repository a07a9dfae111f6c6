//! Doors for the fuzz targets to private functions: every parser of what others wrote, without
//! the files around it. No part of the API.

use crate::error::Result;
use crate::framed::{Record, decode, encode};
use crate::gpu::device_nodes;
use crate::model::Process;
use crate::process::{self, Reads, View};
use crate::reclaim::liveness::Liveness;
use crate::store::{self, Instance, Key, Lease};
use std::path::Path;

/// A record of either kind.
#[derive(Debug, PartialEq)]
pub enum AnyRecord {
    Lease(Box<Lease>),
    Instance(Box<Instance>),
}

pub fn record(bytes: &[u8]) -> Result<AnyRecord> {
    match decode(bytes) {
        Ok(lease) => Ok(AnyRecord::Lease(Box::new(lease))),
        Err(e) => match decode(bytes) {
            Ok(instance) => Ok(AnyRecord::Instance(Box::new(instance))),
            Err(_) => Err(e),
        },
    }
}

/// With the header of each kind that its hash asks for, which no fuzzer would guess.
pub fn records_of_body(body: &[u8]) -> [Vec<u8>; 2] {
    [Lease::FORM, Instance::FORM].map(|form| form.frame(body))
}

pub fn record_bytes(record: &AnyRecord) -> Vec<u8> {
    let bytes = match record {
        AnyRecord::Lease(lease) => encode(&**lease),
        AnyRecord::Instance(instance) => encode(&**instance),
    };
    bytes.expect("what was read from JSON has only UTF-8 paths")
}

/// Returns what a writer makes of the ledger that a reader reads; none for a damaged one.
pub fn rewritten_ledger(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    store::rewritten_ledger(bytes)
}

/// With the header that its hash asks for, which no fuzzer would guess.
pub fn ledger_of_body(body: &str) -> Vec<u8> {
    store::ledger_of_body(body)
}

/// Returns the majors and names of the character devices in a text like `/proc/devices`.
pub fn devices(text: &str) -> Vec<(u32, String)> {
    device_nodes::character_majors(text)
}

/// Returns the number of a line in a text like a capability's access file.
pub fn access_field(text: &str, name: &str) -> Result<u32> {
    device_nodes::field(text, name, Path::new("access"))
}

/// Says whether a process lives, by these reads.
pub fn is_alive(reads: &dyn Reads, process: &Process) -> bool {
    process::is_alive_by(reads, process)
}

/// Returns init as the low-level runtime's record of container `c` has it, and the obstacle to a judgement here. `own`: this
/// process.
pub fn recorded_init(
    reads: &dyn Reads,
    own: u32,
) -> (Result<Option<Process>, String>, Option<String>) {
    let view = View::new(reads, own, true);
    let key = Key::new("/run/runc".into(), "c".to_owned());
    let init = Liveness::new(reads, &view).recorded_init(&key);
    (init, view.obstacle)
}
