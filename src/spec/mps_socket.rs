//! The parts of a specification that can keep a container from the socket of its MPS daemon.

use super::document::Document;
use super::mounts::{MPS, destination};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The facts of a specification.
pub struct Door {
    /// The SELinux label of the container's processes.
    pub selinux_label: Option<String>,
    /// A mount at or above `/tmp` through which the container's mounts reach the host.
    pub shared_mount: Option<String>,
    /// The destinations of all mounts that are not a tmpfs of the container's own.
    pub outside: Vec<PathBuf>,
    /// The root filesystem, relative to the bundle.
    pub rootfs: PathBuf,
}

/// Reads the facts from a specification.
pub fn door(document: &Document) -> Door {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let process = document.root.get("process");
    let mounts = document.mounts();
    // A mount at the very place is removed.
    let is_above = |mount: &&Value| {
        destination(mount).is_some_and(|to| to != Path::new(MPS) && Path::new(MPS).starts_with(to))
    };
    let has = |mount: &Value, words: [&str; 2]| {
        let options = list(mount.get("options"));
        options
            .iter()
            .any(|option| words.iter().any(|word| option == word))
    };
    let above: Vec<&Value> = mounts.iter().filter(is_above).collect();
    let is_bind = |mount: &&Value| {
        has(mount, ["bind", "rbind"]) || text(mount, "type").is_some_and(|typ| typ == "bind")
    };
    let is_own =
        |mount: &&Value| text(mount, "type").is_some_and(|typ| typ == "tmpfs") && !is_bind(mount);
    let outside = { mounts.iter().filter(|mount| !is_own(mount)) }.filter_map(destination);
    let outside = outside.filter(|to| to != Path::new(MPS));
    let root = document.root.get("root");
    let rootfs = root.and_then(|root| text(root, "path"));
    Door {
        selinux_label: process
            .and_then(|p| text(p, "selinuxLabel"))
            .filter(|label| !label.is_empty()),
        shared_mount: { above.iter() }
            .find(|mount| has(mount, ["shared", "rshared"]))
            .and_then(|mount| text(mount, "destination")),
        outside: outside.collect(),
        rootfs: rootfs.unwrap_or_default().into(),
    }
}
