//! The devices in the status of a claim.

use super::{Client, in_time};
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use kube::Api;
use kube::api::{Patch, PatchParams};
use runmig_lease::error::{Context, Error, Result};
use serde_json::json;

/// The owner of this driver's entries in the status. The API server leaves the entries of other owners as they are.
const OWNER: &str = "runmig-dra";

/// The outcome of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The status has the devices.
    Done,
    /// The API server accepts the status and drops the devices, since it does not know them.
    Dropped,
    /// The claim is gone or has lost its devices.
    Lost,
}

/// Sets the devices of this driver in the status of a claim, all of them at once.
///
/// # Errors
/// No answer in time, or a refusal that a later try may not meet.
pub(crate) async fn set_devices(
    client: &Client,
    claim: &ResourceClaim,
    devices: &[AllocatedDeviceStatus],
) -> Result<Written> {
    let metadata = &claim.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    let what = || format!("write the status of claim {namespace}/{name}");
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), namespace);
    let patch = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        // A claim that replaces this one under its name refuses the write.
        "metadata": {"name": name, "uid": metadata.uid},
        "status": {"devices": devices},
    });
    let patch = Patch::Apply(&patch);
    let ours = PatchParams::apply(OWNER).force();
    let answer = async {
        match claims.patch_status(name, &ours, &patch).await {
            // 422 may be a missing right, and an allocation that is gone shows at the next read.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(None),
            other => other.map(Some),
        }
    };
    let written = in_time(answer).await.context(what).map_err(hinted)?;
    let Some(written) = written else {
        return Ok(Written::Lost);
    };
    let entries = written.status.and_then(|status| status.devices);
    Ok(match entries.is_some_and(|entries| !entries.is_empty()) {
        true => Written::Done,
        false => Written::Dropped,
    })
}

fn hinted(e: Error) -> Error {
    e.hint("give the account of runmig-dra the rights of docs/dra.md, or see why the API server is away")
}
