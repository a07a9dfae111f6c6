//! Edits config.json: a pure function of the original and of the grant.

use super::document::Document;
use super::hooks::{self, hook};
use super::host::HostView;
use super::{HookCommand, annotations, devices, env, gids, mounts};
use oci_spec::runtime::{Hook, Mount, MountBuilder};
use runmig_lease::cdi::{self, Edits};
use runmig_lease::error::{Context, Result};
use runmig_lease::model::{DeviceNode, NvidiaNumbers};
use std::path::Path;

/// The parts that a container gets.
pub struct Grant<'a> {
    /// The UUIDs of the MIG devices or of the whole GPUs, at least one.
    pub uuids: &'a [&'a str],
    pub nodes: &'a [DeviceNode],
    pub hook: HookCommand,
    pub driver: &'a DriverFiles,
    pub numbers: &'a NvidiaNumbers,
    /// The share of the GPU's memory. None without one.
    pub share: Option<MemoryShare>,
    /// The directory with the socket of the container's MPS daemon. None without a daemon.
    pub door: Option<&'a Path>,
}

/// A share of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryShare {
    /// The memory that the container may use, in MiB.
    pub memory_mib: u64,
    /// The memory that CUDA shows it as the total, in MiB.
    pub total_mib: u64,
}

/// The driver's own files (libcuda and so on), as container edits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriverFiles {
    /// Variables in the form `NAME=value`.
    pub env: Vec<String>,
    pub mounts: Vec<Mount>,
    /// Hooks, each with its list, such as `createContainer`.
    pub hooks: Vec<(String, Hook)>,
    pub additional_gids: Vec<u32>,
}

/// An edited config.json.
pub struct Edited {
    pub bytes: Vec<u8>,
    /// What the edit took away from the user's or the engine's specification, for the log.
    pub removed: Vec<String>,
}

/// Returns the original with the slice in it. It fails if the container could open an NVIDIA device outside
/// `grant.nodes`, or could not open one of `grant.nodes`.
pub fn edit(mut original: Document, grant: &Grant, host: &dyn HostView) -> Result<Edited> {
    let document = &mut original;
    hooks::take_out(document)?;
    let asked = hooks::take_out_marks(document)?;
    if !asked.is_empty() {
        env::check_for_devices(document)?;
    }
    annotations::apply(document, &asked)?;
    let hooks = hooks::take_out_nvidia(document)?;
    let variables = env::apply(document, &grant.driver.env, grant.uuids, grant.share)?;
    gids::put(document, &grant.driver.additional_gids)?;
    mounts::put(document, &grant.driver.mounts)?;
    for (stage, hook) in &grant.driver.hooks {
        hooks::append(document, stage, hook)?;
    }
    mounts::seal(document, grant.nodes, grant.numbers, host)?;
    if let Some(door) = grant.door {
        mounts::put_door(document, door)?;
    }
    let nodes = grant.nodes.iter().map(|node| &*node.path);
    let files = grant.driver.mounts.iter().map(|file| &**file.destination());
    devices::check_masks(document, nodes.chain(files))?;
    devices::put_nodes(document, grant.nodes, grant.numbers)?;
    devices::put_rules(document, grant.nodes, grant.numbers)?;
    hooks::put_first(document, &grant.hook)?;
    let hooks = hooks
        .iter()
        .map(|path| format!("hook {path}: runmig gives the container its GPU"));
    let variables =
        { variables.iter() }.map(|entry| format!("{entry}: the container has no such device"));
    Ok(Edited {
        bytes: document.to_bytes()?,
        removed: hooks.chain(variables).collect(),
    })
}

/// Removes an earlier edit item by item, for a specification whose original is lost. The driver's files
/// stay, because an edit replaces them. The deny-all rule stays too.
pub fn strip(bytes: &[u8], numbers: &NvidiaNumbers) -> Result<Vec<u8>> {
    let mut document = Document::parse(bytes)?;
    hooks::take_out(&mut document)?;
    env::take_out(&mut document);
    mounts::take_out_door(&mut document);
    devices::take_out(&mut document, numbers)?;
    document.to_bytes()
}

/// Returns whether the container uses a user namespace. If it does, runc binds the host's nodes instead of
/// making them.
pub fn uses_user_namespace(document: &Document) -> bool {
    let namespaces = document.root.get("linux").and_then(|l| l.get("namespaces"));
    let namespaces = namespaces.and_then(|n| n.as_array());
    namespaces.is_some_and(|list| {
        list.iter()
            .any(|n| n.get("type").is_some_and(|t| t == "user"))
    })
}

/// Returns the edits in the form of config.json.
pub fn driver_files(edits: Edits) -> Result<DriverFiles> {
    let hook = |given: cdi::Hook| {
        let made = hook(&given.path, given.args, given.env, given.timeout)?;
        Ok((given.hook_name, made))
    };
    Ok(DriverFiles {
        env: edits.env,
        mounts: edits.mounts.into_iter().map(mount).collect::<Result<_>>()?,
        hooks: edits.hooks.into_iter().map(hook).collect::<Result<_>>()?,
        additional_gids: edits.additional_gids,
    })
}

fn mount(given: cdi::Mount) -> Result<Mount> {
    let mut mount = MountBuilder::default()
        .destination(&given.container_path)
        .source(&given.host_path)
        .build()
        .context(|| format!("make mount {}", given.container_path.display()))?;
    mount.set_options(given.options);
    mount.set_typ(given.typ);
    Ok(mount)
}
