//! Doors for the fuzz targets (`fuzz/targets.rs`) to what is nobody else's business: every parser of
//! what others wrote, without the files and pipes around it. No part of the API.

use crate::error::Result;
use crate::spec::{DriverFiles, cdi};
use crate::store::{self, Lease};
use std::ffi::OsString;

/// The hook's arguments and what it reads on standard input: the lease and the id that come of it.
pub fn hook(args: &[OsString], state: &[u8]) -> Result<(Vec<String>, String)> {
    crate::hook::understand(args, state)
}

pub fn record(bytes: &[u8]) -> Result<Lease> {
    store::decode(bytes)
}

/// With the header that its hash asks for, which no fuzzer would guess.
pub fn record_of_body(body: &[u8]) -> Vec<u8> {
    store::frame(body)
}

pub fn record_bytes(lease: &Lease) -> Vec<u8> {
    store::encode(lease).expect("what was read from JSON has only UTF-8 paths")
}

/// None where the specification is another vendor's.
pub fn cdi_specification(text: &str, json: bool) -> Result<Option<DriverFiles>> {
    cdi::parse(text, json)
}

/// The original that a file beside config.json says it has kept.
pub fn sidecar(bytes: Vec<u8>) -> Option<Vec<u8>> {
    crate::spec::sidecar_original(bytes)
}
