//! Edits `mounts`: it adds the driver's files, and removes mounts that would bring other NVIDIA devices.
//!
//! The device rules keep a container from a device. They also stop it from opening a node that came by a
//! mount or by mknod. So the rules handle a mount of a directory that contains the host's /dev, as `/`
//! does.
//!
//! This module refuses or removes mounts of devices, above all of /dev itself. runc makes no nodes in a
//! bound /dev. The container also gets nodes that appear there later, and the host gets nodes that the
//! container makes.

use super::Source;
use super::devices::{is_granted, is_nvidia};
use super::document::{Document, array, get, get_mut, part, string, try_retain, utf8, wrong_kind};
use oci_spec::runtime::MountBuilder;
use runmig_lease::cdi;
use runmig_lease::error::{Error, Result};
use runmig_lease::model::{DeviceNode, NvidiaNumbers};
use runmig_lease::paths::clean;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The destinations of device lists. nvidia-container-runtime reads a mount there as a request for devices,
/// before any variable.
const DEVICE_LISTS: [&str; 2] = [
    "/var/run/nvidia-container-devices",
    "/run/nvidia-container-devices",
];

/// Returns whether a mount asks for devices. nvidia-container-runtime compares texts, not folders:
/// `…-devicesall` asks for `all` too.
fn asks_for_devices(destination: &Path) -> bool {
    let text = destination.as_os_str().as_encoded_bytes();
    let mut lists = DEVICE_LISTS.iter();
    lists.any(|list| text.starts_with(list.as_bytes()))
}

/// Appends the driver's files, each destination once. An engine that applied the same CDI specification
/// earlier has mounted the same files.
///
/// CDI's own library sorts all mounts by depth. runmig keeps the engine's order, and mounts each folder of the driver before
/// what the user mounts below it.
pub fn put(document: &mut Document, files: &[cdi::Mount]) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let mut files: Vec<&cdi::Mount> = files.iter().collect();
    files.sort_by_key(|file| clean(&file.container_path).components().count());
    let mounts = array(&mut document.root, "mounts", "mounts")?;
    mounts.retain(|mount| {
        destination(mount)
            .is_none_or(|d| !files.iter().any(|file| clean(&file.container_path) == d))
    });
    for file in files {
        let here = clean(&file.container_path);
        let is_below = |mount: &Value| destination(mount).is_some_and(|to| to.starts_with(&here));
        let is_above = |mount: &Value| destination(mount).is_some_and(|to| here.starts_with(to));
        let first = mounts.iter().rposition(is_above).map_or(0, |at| at + 1);
        let below = mounts[first..].iter().position(is_below);
        let at = below.map_or(mounts.len(), |below| first + below);
        mounts.insert(at, written(file)?);
    }
    Ok(())
}

/// Returns a mount as config.json has it.
fn written(file: &cdi::Mount) -> Result<Value> {
    let mount = MountBuilder::default()
        .destination(&file.container_path)
        .source(&file.host_path)
        .build();
    part(mount.map(|mut mount| {
        mount.set_options(file.options.clone());
        mount.set_typ(file.typ.clone());
        mount
    }))
}

pub fn destination(mount: &Value) -> Option<PathBuf> {
    mount.get("destination")?.as_str().map(clean)
}

/// Returns whether the user or the engine mounts libcuda into the container.
pub fn has_libcuda(document: &Document) -> bool {
    let mut all = document.mounts().iter().filter_map(destination);
    all.any(|to| cdi::is_libcuda(&to))
}

/// Refuses a container that has the image's own /dev. Every engine mounts a /dev. Without it, low-level
/// runtimes make nodes behind the image's links. With crun 1.8, `/dev -> /` leads onto the host.
pub fn check_dev(bytes: &[u8]) -> Result<()> {
    let document = Document::parse(bytes)?;
    let mut all = document.mounts().iter().filter_map(destination);
    if all.any(|to| to == Path::new("/dev")) {
        return Ok(());
    }
    Err(Error::new(
        "config.json mounts nothing at /dev, so device nodes would be made in the image",
    )
    .hint("mount a tmpfs at /dev, as runc spec and every engine do"))
}

pub fn seal(
    document: &mut Document,
    nodes: &[DeviceNode],
    numbers: &NvidiaNumbers,
    host: &dyn Fn(&Path) -> Result<Source>,
) -> Result<()> {
    let Some(mounts) = get_mut(&mut document.root, "mounts") else {
        return Ok(());
    };
    let mounts = mounts
        .as_array_mut()
        .ok_or_else(|| wrong_kind("mounts", "array"))?;
    try_retain(mounts, |at, mount| stays(mount, at, nodes, numbers, host))
}

/// The directory in which CUDA looks for an MPS daemon. NVIDIA's runtime mounts the host's into every container.
pub const MPS: &str = "/tmp/nvidia-mps";

/// Mounts the socket of the container's own daemon where CUDA looks for it. So the limit holds for every process,
/// also for one that clears its environment. It stands last, above any mount on `/tmp`.
pub fn put_door(document: &mut Document, door: &Path) -> Result<()> {
    let source = utf8(door)?;
    let mounts = array(&mut document.root, "mounts", "mounts")?;
    mounts.push(json!({
        "destination": MPS,
        "type": "bind",
        "source": source,
        "options": ["bind", "ro", "nosuid", "nodev", "noexec"],
    }));
    Ok(())
}

/// Removes every mount where CUDA looks for an MPS daemon.
pub fn take_out_door(document: &mut Document) {
    if let Some(mounts) = document.list_mut(&["mounts"]) {
        mounts.retain(|mount| destination(mount).is_none_or(|to| !to.starts_with(MPS)));
    }
}

fn stays(
    mount: &Value,
    at: usize,
    nodes: &[DeviceNode],
    numbers: &NvidiaNumbers,
    host: &dyn Fn(&Path) -> Result<Source>,
) -> Result<bool> {
    let at = format!("mounts[{at}]");
    let map = mount.as_object().ok_or_else(|| wrong_kind(&at, "object"))?;
    let options = match get(map, "options") {
        None => &[][..],
        Some(Value::Array(options)) => options,
        Some(_) => return Err(wrong_kind(&format!("{at}.options"), "array")),
    };
    let text = |key: &str| string(map, key, &at);
    let typ = text("type")?.unwrap_or_default();
    let to = &clean(text("destination")?.unwrap_or_default());
    let given = text("source")?;
    let is_bind = typ == "bind" || options.iter().any(|o| *o == "bind" || *o == "rbind");
    // The daemon there serves other holders of the GPU.
    if asks_for_devices(to) || to.starts_with(MPS) {
        return Ok(false);
    }
    let source = match given {
        Some(given) if is_bind => host(Path::new(given))?,
        _ if typ == "devtmpfs" => Source::Dev,
        _ => Source::Other,
    };
    if source == Source::Dev || (is_bind && to == Path::new("/dev")) {
        return Err(Error::new(format!(
            "mount of {} at {} gives the container the devices of the host",
            given.unwrap_or("the host's /dev"),
            to.display()
        ))
        .hint("mount the devices that it needs, not /dev"));
    }
    // A mount hides the path of a granted node, or its directory.
    let hides = to != Path::new("/")
        && to != Path::new("/dev")
        && nodes.iter().any(|node| node.path.starts_with(to));
    Ok(match source {
        Source::CharDevice { major, minor } => {
            let granted = is_granted(nodes, major, minor);
            let here = |n: &DeviceNode| n.path == *to && (n.major, n.minor) == (major, minor);
            (granted || !is_nvidia(numbers, major, minor)) && (!hides || nodes.iter().any(here))
        }
        Source::Driver => false,
        _ => !hides,
    })
}
