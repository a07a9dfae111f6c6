//! The edit of `config.json` that gives a container its leases.

use super::Slicing;
use crate::runtime::Front;
use crate::spec::{self, Document, Grant, HookCommand, MemoryShare};
use runmig_lease::cdi::{Edits, Node, Specification};
use runmig_lease::driver_files::{self, is_nvidia};
use runmig_lease::error::{Error, Result};
use runmig_lease::gpu::device_nodes::check_on_host;
use runmig_lease::model::Level;
use runmig_lease::store::{Held, Resource};
use std::path::PathBuf;

/// Returns the share of a lease, and the memory that CUDA shows: without the driver's limit that is all that the
/// GPU or the slice gives out.
fn memory_share(held: &Held) -> Option<MemoryShare> {
    let share = held.lease.share()?;
    let total_mib = match share.enforcement.level() {
        Level::Driver => share.memory_mib,
        Level::Mps | Level::None => held.instance.resource.memory_mib(),
    };
    Some(MemoryShare {
        memory_mib: share.memory_mib,
        total_mib,
    })
}

/// Returns the minor of the GPU whose DRM nodes the container may have: it has the whole GPU, or its slice draws.
fn drawing_gpu(held: &Held) -> Option<u32> {
    // A client of MPS cannot draw.
    if held.lease.daemon().is_some() {
        return None;
    }
    match &held.instance.resource {
        Resource::Gpu(gpu) => Some(gpu.gpu_minor),
        Resource::Mig(slice) => has_graphics(&slice.profile).then_some(slice.gpu_minor),
    }
}

/// Returns whether a profile's slices draw: `1g.24gb+gfx`.
fn has_graphics(profile: &str) -> bool {
    let mut attributes = profile.split('+').skip(1);
    attributes.any(|attribute| attribute.split('-').next() == Some("gfx"))
}

impl Slicing<'_> {
    /// Returns the edited `config.json`: the devices of the leases, and nothing that another container has.
    pub(super) fn edit(
        &self,
        leases: &[Held],
        original: Document,
        driver: Edits,
        hook: PathBuf,
    ) -> Result<Vec<u8>> {
        let mut devices = self.nodes.required_nodes().to_vec();
        let mut uuids = Vec::new();
        for held in leases {
            let resource = &held.instance.resource;
            let missing = || Error::new("the lease has no instance");
            uuids.push(resource.device().ok_or_else(missing)?);
            let minor = resource.gpu_minor();
            let gpu = self.nodes.gpu_node(minor);
            if !devices.contains(&gpu) {
                devices.push(gpu);
            }
            if let Some(slice) = held.instance.slice() {
                let both = slice.gpu_instance.zip(slice.compute_instance);
                let (gi, ci) = both.ok_or_else(missing)?;
                devices.extend(self.nodes.capability_nodes(minor, gi, ci)?);
            }
        }
        let mut numbers = self.nodes.numbers().clone();
        for gpu in leases.iter().filter_map(drawing_gpu) {
            let own = self.nodes.drm_of(gpu);
            numbers.drm.retain(|number| !own.contains(number));
        }
        let mut optional = self.nodes.optional_nodes();
        if spec::uses_user_namespace(&original) {
            check_on_host(&devices)?;
            // runmig refuses no container for a node that CUDA does not need.
            optional.retain(|node| check_on_host(std::slice::from_ref(node)).is_ok());
        }
        devices.extend(optional);
        let mut args = Vec::new();
        if let Some(file) = &self.front.config.file {
            args.extend(["--config".to_owned(), spec::utf8(file)?.to_owned()]);
        }
        for device in &self.asking.devices {
            args.extend([spec::ASKED_FLAG.to_owned(), device.argument()]);
        }
        let door = leases.iter().find_map(|held| self.leases.door(held));
        let grant = Grant {
            uuids: &uuids,
            nodes: &devices,
            hook: HookCommand {
                path: hook,
                leases: leases.iter().map(|h| h.lease.id.clone()).collect(),
                args,
                limits: leases
                    .iter()
                    .any(|held| held.lease.level() == Some(Level::Driver)),
            },
            driver: &driver,
            numbers: &numbers,
            share: leases.iter().find_map(memory_share),
            door: door.as_deref(),
        };
        let root = &self.front.config.driver.root;
        let host = spec::sources(&self.asking.bundle_path, root);
        let edited = spec::edit(original, &grant, &host)?;
        for what in &edited.removed {
            tracing::warn!("removed {what}");
        }
        spec::check_dev(&edited.bytes)?;
        Ok(edited.bytes)
    }
}

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
pub fn files(specification: Option<&Specification>, leases: &[Held]) -> Edits {
    let gpus: Vec<(u32, &str)> = { leases.iter() }
        .map(|held| &held.instance.resource)
        .map(|resource| (resource.gpu_index(), resource.gpu_uuid().as_str()))
        .collect();
    specification.map_or_else(Edits::default, |it| it.edits(&gpus))
}
