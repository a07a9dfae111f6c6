//! `migctl configure`: a `ChangeList`.

use serde::Serialize;
use std::path::Path;

/// A file of an engine.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeItem<'a> {
    /// The engine and its version: `containerd 1.6.20`.
    pub engine: &'a str,
    /// The file's path as the engine names it, without `--root`.
    pub path: &'a Path,
    /// `created`, `changed`, `removed` or `unchanged`. A dry run says the change that a run would make.
    pub change: &'static str,
    /// The command that makes the engine read the file; null where none is needed.
    pub restart: Option<&'static str>,
}
