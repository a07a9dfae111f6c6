//! The driver's files for a container, by the configuration.

use super::Front;
use crate::spec::{self, Document, DriverFiles};
use runmig_lease::cdi::{Node, Specification};
use runmig_lease::driver_files::{self, is_nvidia};
use runmig_lease::error::Result;
use runmig_lease::store::Held;

/// Returns the specification that brings libcuda, with files that the node has. None where runmig adds nothing.
pub fn find(front: &Front<'_>, original: &Document) -> Result<Option<Specification>> {
    let others_bring = is_nvidia(&front.runtime.path) || spec::has_libcuda(original);
    let source = driver_files::find(front.config, others_bring, Node::HERE)?;
    for why in &source.warnings {
        tracing::warn!("{}", why.line());
    }
    Ok(source.specification)
}

/// Returns the files for a container with these leases.
pub fn files(specification: Option<&Specification>, leases: &[Held]) -> Result<DriverFiles> {
    let gpus: Vec<(u32, &str)> = { leases.iter() }
        .map(|held| &held.instance.resource)
        .map(|resource| (resource.gpu_index(), resource.gpu_uuid().as_str()))
        .collect();
    let edits = specification.map(|specification| specification.edits(&gpus));
    spec::cdi::driver_files(edits.unwrap_or_default())
}
