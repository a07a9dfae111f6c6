//! Edits `process`. Only runmig decides which devices the container's NVIDIA tools use.

use super::document::{Document, array, object, wrong_kind};
use super::{MemoryShare, section};
use runmig_lease::error::{Error, Result};
use runmig_lease::request::DEVICE_KINDS;
use serde_json::Value;
use std::collections::BTreeSet;

pub const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";

/// Variables that make nvidia-container-runtime add devices beside the visible ones. These are MIG's own
/// capabilities of the whole machine, IMEX channels, GPUDirect and NVSwitch. `NVIDIA_DRIVER_CAPABILITIES`,
/// `NVIDIA_REQUIRE_*` and the like choose files and checks, and stay.
const WIDENING: [&str; 7] = [
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_GDS",
    "NVIDIA_MOFED",
    "NVIDIA_GDRCOPY",
    "NVIDIA_NVSWITCH",
];

/// The prefix of the variable in which Docker Swarm names the GPUs of a task. If nvidia-container-runtime's
/// `swarm-resource` names the variable too, it overrides `NVIDIA_VISIBLE_DEVICES`, from any source.
const SWARM: &str = "DOCKER_RESOURCE_";

fn widens(name: &str) -> bool {
    WIDENING.contains(&name) || name.starts_with(SWARM)
}

/// The prefixes of variables by which a program of the image, or NVIDIA's runtime, would set other limits than
/// the share's.
const LIMITING: [&str; 4] = [
    "CUDA_MPS_",
    "NVIDIA_GPU_MEMORY_",
    "CUDA_DEVICE_MEMORY_",
    "CUDA_DEVICE_SM_",
];

/// The variable with the memory of a share, in bytes.
const MEMORY: &str = "RUNMIG_GPU_MEMORY";
/// The variable with that memory as a fraction of the memory that CUDA shows as the total.
const FRACTION: &str = "RUNMIG_GPU_MEMORY_FRACTION";

/// The variable by which CUDA chooses among the container's devices. Its value may be meant for another container, or for
/// the whole machine: CUDA then finds no device at all.
const CUDA: &str = "CUDA_VISIBLE_DEVICES";

/// Refuses a container whose environment names a CDI device of runmig. An nvidia-container-runtime that called runmig
/// made a device of it, and it may be the image's.
pub fn check_for_devices(document: &mut Document) -> Result<()> {
    let names = |entry: &Value| {
        let text = entry.as_str().and_then(|entry| entry.strip_prefix(VISIBLE));
        text.is_some_and(|devices| DEVICE_KINDS.iter().any(|kind| devices.contains(kind)))
    };
    match variables(document)?.iter().any(names) {
        false => Ok(()),
        true => Err(Error::new(format!(
            "cannot tell whether the user or the image asks: {VISIBLE} names a CDI device of runmig"
        ))
        .hint("take it out of the environment, and let the engine call runmig without nvidia-container-runtime")),
    }
}

/// Sets the variables of the driver's files, then of the slices, each once. It removes variables that would
/// add devices, and for a share those that would set limits. It returns those that named a device which the container
/// does not have.
pub fn apply(
    document: &mut Document,
    driver: &[String],
    uuids: &[&str],
    share: Option<MemoryShare>,
) -> Result<Vec<String>> {
    let env = variables(document)?;
    let limits = |name: &str| LIMITING.iter().any(|prefix| name.starts_with(prefix));
    let goes = |name: &str| widens(name) || (share.is_some() && limits(name));
    env.retain(|entry| !goes(name(entry)));
    for entry in driver {
        let key = entry.split('=').next().unwrap_or_default();
        // `nvidia-ctk cdi generate` writes NVIDIA_VISIBLE_DEVICES=void.
        if key != VISIBLE && !goes(key) {
            set(env, key, entry.clone());
        }
    }
    let is_stale = |entry: &mut Value| {
        let value = entry.as_str().and_then(|entry| entry.strip_prefix(CUDA));
        value.is_some_and(|value| match value.strip_prefix('=') {
            Some(list) => !chooses(list, uuids),
            None => value.is_empty(),
        })
    };
    let stale: Vec<Value> = env.extract_if(.., is_stale).collect();
    set(env, VISIBLE, format!("{VISIBLE}={}", uuids.join(",")));
    if let Some(share) = share {
        set(env, MEMORY, format!("{MEMORY}={}", share.memory_mib << 20));
        set(env, FRACTION, format!("{FRACTION}={}", fraction(share)));
    }
    let stale = stale.iter().filter_map(Value::as_str);
    Ok(stale.map(str::to_owned).collect())
}

/// Returns whether a value of `CUDA_VISIBLE_DEVICES` chooses devices of the container: by their indexes or by whole UUIDs,
/// each once. CUDA takes no list of both.
fn chooses(list: &str, uuids: &[&str]) -> bool {
    let words: Vec<&str> = list.split(',').map(str::trim).collect();
    let index = |word: &&str| word.parse().ok().filter(|at| *at < uuids.len());
    let uuid = |word: &&str| uuids.iter().position(|uuid| uuid == word);
    let all = |found: &dyn Fn(&&str) -> Option<usize>| {
        let found: Option<BTreeSet<usize>> = words.iter().map(found).collect();
        found.is_some_and(|found| found.len() == words.len())
    };
    all(&index) || all(&uuid)
}

/// Returns the share's part of the total with four digits, cut: `0.1010`.
fn fraction(share: MemoryShare) -> String {
    let parts = share.memory_mib.saturating_mul(10_000) / share.total_mib.max(1);
    format!("{}.{:04}", parts / 10_000, parts % 10_000)
}

/// Removes the slices, shares and GPUs that an edit of runmig named.
pub fn take_out(document: &mut Document) {
    let Some(env) = document.list_mut(&["process", "env"]) else {
        return;
    };
    env.retain(|entry| {
        let value = entry.as_str().and_then(|entry| entry.split_once('='));
        let is_ours = |uuid: &str| uuid.starts_with("MIG-") || uuid.starts_with("GPU-");
        !matches!(value, Some((VISIBLE, uuids)) if is_ours(uuids))
            && ![MEMORY, FRACTION].contains(&name(entry))
    });
}

/// Returns the MIG devices that a config.json names.
pub fn granted(config: &Value) -> Vec<String> {
    let env = config.pointer("/process/env").and_then(Value::as_array);
    let mut words = env.into_iter().flatten().filter_map(Value::as_str);
    let list = words.find_map(|word| word.strip_prefix(VISIBLE)?.strip_prefix('='));
    let uuids = list.into_iter().flat_map(|list| list.split(','));
    uuids
        .filter(|uuid| uuid.starts_with("MIG-"))
        .map(str::to_owned)
        .collect()
}

fn variables(document: &mut Document) -> Result<&mut Vec<Value>> {
    let env = array(section(document, "process")?, "env", "process.env")?;
    if env.iter().all(Value::is_string) {
        Ok(env)
    } else {
        Err(wrong_kind("process.env", "array of strings"))
    }
}

/// Adds groups, for driver nodes that belong to one.
pub fn put_gids(document: &mut Document, gids: &[u32]) -> Result<()> {
    if gids.is_empty() {
        return Ok(());
    }
    let user = object(section(document, "process")?, "user", "process.user")?;
    let list = array(user, "additionalGids", "process.user.additionalGids")?;
    for gid in gids {
        let gid = Value::from(*gid);
        if !list.contains(&gid) {
            list.push(gid);
        }
    }
    Ok(())
}

fn name(entry: &Value) -> &str {
    let name = || entry.as_str()?.split('=').next();
    name().unwrap_or_default()
}

/// Replaces the first variable of that name, and removes the others.
fn set(env: &mut Vec<Value>, key: &str, entry: String) {
    let at = env.iter().position(|e| name(e) == key);
    env.retain(|e| name(e) != key);
    env.insert(at.unwrap_or(env.len()), Value::String(entry));
}
