//! The parts of a specification that can keep a container from the socket of its MPS daemon.

use super::document::Document;
use super::mounts::MPS;
use super::paths::clean;
use runmig_lease::error::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The facts of a specification.
pub struct Door {
    /// The SELinux label of the container's processes.
    pub selinux_label: Option<String>,
    /// A mount at or above `/tmp` through which the container's mounts reach the host.
    pub shared_mount: Option<String>,
    /// The sources of bind mounts there, in which the low-level runtime makes the mount point.
    pub sources: Vec<PathBuf>,
}

/// Reads the facts from a specification.
pub fn door(bytes: &[u8]) -> Result<Door> {
    let document = Document::parse(bytes)?;
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let process = document.root.get("process");
    let mounts = list(document.root.get("mounts"));
    // A mount at the very place is removed.
    let is_above = |mount: &&Value| {
        let to = mount.get("destination").and_then(Value::as_str).map(clean);
        to.is_some_and(|to| to != Path::new(MPS) && Path::new(MPS).starts_with(to))
    };
    let has = |mount: &Value, words: [&str; 2]| {
        let options = list(mount.get("options"));
        options
            .iter()
            .any(|option| words.iter().any(|word| option == word))
    };
    let above: Vec<&Value> = mounts.iter().filter(is_above).collect();
    let binds = above.iter().filter(|mount| has(mount, ["bind", "rbind"]));
    let sources = binds
        .filter_map(|mount| text(mount, "source"))
        .map(PathBuf::from);
    Ok(Door {
        selinux_label: process
            .and_then(|p| text(p, "selinuxLabel"))
            .filter(|label| !label.is_empty()),
        shared_mount: { above.iter() }
            .find(|mount| has(mount, ["shared", "rshared"]))
            .and_then(|mount| text(mount, "destination")),
        sources: sources.collect(),
    })
}
