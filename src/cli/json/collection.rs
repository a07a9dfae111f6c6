//! `migctl gc`: a `CollectionList`.

use serde::Serialize;

/// A lease that `migctl gc` looked at.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectionItem<'a> {
    /// The lease's id; empty where a damaged record does not say it.
    pub id: &'a str,
    /// The container's id; empty for an idle slice and for a claim, `?` for a damaged record.
    pub container: &'a str,
    /// The claim of Kubernetes that holds the slice, as `NAMESPACE/NAME`; null for a container.
    pub claim: Option<String>,
    /// The holder for people.
    #[serde(skip)]
    pub holder: String,
    /// The MIG profile; `gpu` for a whole GPU, `?` for a damaged record.
    pub profile: &'a str,
    /// The GPU's UUID; empty where a damaged record does not say it.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: &'a str,
    /// `kept`, `released` or `failed`. A dry run says the outcome that a run would have.
    pub outcome: &'static str,
    /// The reason of the outcome, in words.
    pub why: String,
}
