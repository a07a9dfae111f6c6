//! The version of mig-parted's files, and the error of a key that they do not have.

use super::node::Node;
use crate::error::{Error, Result};

const VERSION: &str = "v1";

/// Checks the version among the keys of a file.
pub(super) fn check_version(keys: &[(String, Node)]) -> Result<()> {
    let version = keys.iter().find(|(key, _)| key == "version");
    let why = match version {
        Some((_, Node::Text(version))) if version == VERSION => return Ok(()),
        Some((_, Node::Text(version))) => format!("it has the unknown version {version:?}"),
        _ => "it has no version".to_owned(),
    };
    Err(Error::new(why).hint(format!("write version: {VERSION}")))
}

pub(super) fn unknown_key(key: &str) -> Error {
    Error::new(format!("the key {key:?} is unknown")).hint("remove it")
}
