//! Edits a bundle's config.json without loss, and leaves a container only the NVIDIA devices of its slice.
//!
//! An edit changes only these fields: `process.env`, `linux.devices`, `linux.resources.devices`, `hooks`,
//! `mounts`. It changes `process.user.additionalGids` if the driver's files ask for a group.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod annotations;
pub mod bundle;
mod cgroups;
mod devices;
mod document;
mod edit;
mod env;
mod hooks;
mod host;
mod lenient_json;
mod mounts;
mod oci;
mod peek;
mod reading;
pub(crate) mod sidecar;

pub use cgroups::{CgroupManager, cgroup};
pub use document::{Document, utf8};
pub use edit::{Edited, Grant, MemoryShare, edit, strip, uses_user_namespace};
pub use hooks::{ASKED_FLAG, HOOK_TIMEOUT_S, HookCommand, Mark, Marked};
pub use host::{Source, sources};
pub use lenient_json::{Token, Tokens};
pub use mounts::{MPS, check_dev, destination, has_libcuda};
pub use oci::is_same;
pub use peek::{Peek, peek};

use runmig_lease::error::{Error, Result};
use serde_json::{Map, Value};

/// Returns a section that must exist. Without it runmig has no place for a slice.
fn section<'a>(document: &'a mut Document, key: &str) -> Result<&'a mut Map<String, Value>> {
    document::get_mut(&mut document.root, key)
        .ok_or_else(|| {
            Error::new(format!(
                "config.json has no {key}: no GPU can be put into it"
            ))
        })?
        .as_object_mut()
        .ok_or_else(|| document::wrong_kind(key, "object"))
}
