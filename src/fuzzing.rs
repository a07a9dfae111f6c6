//! Doors for the fuzz targets (`fuzz/targets.rs`) to private functions: every parser of
//! what others wrote, without the files and pipes around it. No part of the API.

pub use runmig_lease::fuzzing::*;

use runmig_lease::cdi::Edits;
use runmig_lease::error::Result;
use runmig_lease::model::LeaseId;
use std::ffi::OsString;

/// The hook's arguments and what it reads on standard input: the lease and the id that come of it.
pub fn hook(args: &[OsString], state: &[u8]) -> Result<(Vec<LeaseId>, String)> {
    crate::hook::understand(args, state)
}

/// None where the specification is another vendor's.
pub fn cdi_specification(text: &str, json: bool) -> Result<Option<Edits>> {
    let specification = runmig_lease::cdi::parse(text, json, "nvidia.com/gpu")?;
    Ok(specification.map(|it| it.edits(&[(0, "GPU-1")])))
}

/// The original that a file beside config.json says it has kept.
pub fn sidecar(bytes: Vec<u8>) -> Option<Vec<u8>> {
    crate::spec::sidecar::Sidecar::parse(bytes).map(|sidecar| sidecar.original)
}
