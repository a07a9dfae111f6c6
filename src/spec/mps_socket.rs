//! The parts of a specification that can keep a container from the socket of its MPS daemon.

use super::document::Document;
use super::mounts::{MPS, destination};
use super::paths::clean;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The facts of a specification.
pub struct Door {
    /// The SELinux label of the container's processes.
    pub selinux_label: Option<String>,
    /// The mounts, but for those at the very place, which runmig removes.
    pub mounts: Vec<Mount>,
    /// The paths that the low-level runtime hides.
    pub masked: Vec<PathBuf>,
    /// The root filesystem, relative to the bundle.
    pub rootfs: PathBuf,
}

/// A mount.
pub struct Mount {
    /// Its destination, as the specification has it.
    pub destination: PathBuf,
    /// Says whether it is a tmpfs of the container's own.
    pub is_own: bool,
    /// Says whether mounts below it reach the host.
    pub is_shared: bool,
    /// The mode of its folder, if an option gives one.
    pub mode: Option<u32>,
}

/// Reads the facts from a specification.
pub fn door(document: &Document) -> Door {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let process = document.root.get("process");
    let mount = |mount: &Value| {
        let options = mount.get("options").and_then(Value::as_array);
        let options: Vec<&str> = { options.into_iter().flatten() }
            .filter_map(Value::as_str)
            .collect();
        let is_one_of = |words: &[&str]| options.iter().any(|option| words.contains(option));
        let is_type = |wanted: &str| text(mount, "type").is_some_and(|typ| typ == wanted);
        let mode = options
            .iter()
            .rev()
            .find_map(|option| option.strip_prefix("mode="));
        Some(Mount {
            destination: destination(mount).filter(|to| to != Path::new(MPS))?,
            is_own: is_type("tmpfs") && !is_one_of(&["bind", "rbind"]),
            is_shared: is_one_of(&["shared", "rshared"]),
            mode: mode.and_then(|mode| u32::from_str_radix(mode, 8).ok()),
        })
    };
    let root = document.root.get("root");
    let rootfs = root.and_then(|root| text(root, "path"));
    Door {
        selinux_label: process
            .and_then(|p| text(p, "selinuxLabel"))
            .filter(|label| !label.is_empty()),
        mounts: document.mounts().iter().filter_map(mount).collect(),
        masked: document.masked_paths().map(clean).collect(),
        rootfs: rootfs.unwrap_or_default().into(),
    }
}
