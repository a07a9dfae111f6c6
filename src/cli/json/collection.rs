//! `migctl gc`: a `CollectionList`.

use serde::Serialize;

/// A lease that `migctl gc` looked at.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectionItem<'a> {
    /// The id of the lease, or of an instance without one.
    pub id: &'a str,
    /// The container's id; empty for an idle slice and for a claim.
    pub container: &'a str,
    /// The claim of Kubernetes that holds the slice, as `NAMESPACE/NAME`; null for a container.
    pub claim: Option<String>,
    /// The holder for people.
    #[serde(skip)]
    pub holder: String,
    /// The MIG profile; `gpu` for a whole GPU.
    pub profile: &'a str,
    /// The GPU's UUID.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: &'a str,
    /// `kept`, `released` or `failed`. A dry run says the outcome that a run would have.
    pub outcome: &'static str,
    /// The reason of the outcome, in words.
    pub why: String,
}
