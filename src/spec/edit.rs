//! Edits config.json: a pure function of the original and of the grant.

use super::document::Document;
use super::{HookCommand, Source, annotations, devices, env, hooks, mounts};
use runmig_lease::cdi::Edits;
use runmig_lease::error::Result;
use runmig_lease::model::{DeviceNode, NvidiaNumbers};
use std::path::Path;

/// The parts that a container gets.
pub struct Grant<'a> {
    /// The UUIDs of the MIG devices or of the whole GPUs, at least one.
    pub uuids: &'a [&'a str],
    pub nodes: &'a [DeviceNode],
    pub hook: HookCommand,
    /// The driver's own files (libcuda and so on).
    pub driver: &'a Edits,
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

/// An edited config.json.
pub struct Edited {
    pub bytes: Vec<u8>,
    /// What the edit took away from the user's or the engine's specification, for the log.
    pub removed: Vec<String>,
}

/// Returns the original with the slice in it. It fails if the container could open an NVIDIA device outside
/// `grant.nodes`, or could not open one of `grant.nodes`.
///
/// `host` tells what the source of a bind mount is; `sources` returns such a function.
pub fn edit(
    mut original: Document,
    grant: &Grant,
    host: &dyn Fn(&Path) -> Result<Source>,
) -> Result<Edited> {
    let document = &mut original;
    hooks::take_out(document)?;
    let asked = hooks::take_out_marks(document)?;
    if !asked.is_empty() {
        env::check_for_devices(document)?;
    }
    annotations::apply(document, &asked)?;
    let hooks = hooks::take_out_nvidia(document)?;
    let variables = env::apply(document, &grant.driver.env, grant.uuids, grant.share)?;
    env::put_gids(document, &grant.driver.additional_gids)?;
    mounts::put(document, &grant.driver.mounts)?;
    for hook in &grant.driver.hooks {
        hooks::append(document, hook)?;
    }
    mounts::seal(document, grant.nodes, grant.numbers, host)?;
    if let Some(door) = grant.door {
        mounts::put_door(document, door)?;
    }
    let nodes = grant.nodes.iter().map(|node| &*node.path);
    let files = grant.driver.mounts.iter().map(|file| &*file.container_path);
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
    let mut namespaces = document.list(&["linux", "namespaces"]).iter();
    namespaces.any(|namespace| namespace.get("type").is_some_and(|kind| kind == "user"))
}
