//! `migctl dcgm reload`: a `ReloadList`.

use serde::Serialize;

/// A process of dcgm-exporter.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadItem {
    /// The process id.
    pub pid: i32,
    /// `reloads`; `starts` for a process that lists the instances at its start anyway; `ended` or `failed`.
    pub outcome: &'static str,
    /// The reason of the outcome, in words; null where there is none to tell.
    pub why: Option<String>,
}
