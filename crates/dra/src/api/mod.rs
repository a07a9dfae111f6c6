//! The API server: the way to it, the reads of claims, and reports about them.

pub(crate) mod probe;
mod watch;

pub(crate) use kube::Client;
pub(crate) use watch::{Event, Watch};

use crate::obstacle::Obstacles;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1 as events;
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim, ResourceSlice};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::core::response::StatusDetails;
use kube::{Api, Config, ResourceExt};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::programs::DRIVER;
use serde_json::json;
use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

/// The time for one answer. The kubelet waits 45 seconds for the whole of a Prepare.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The times that a busy API server is asked for a claim, and the time between two.
const TRIES: (u32, Duration) = (3, Duration::from_secs(1));

/// Returns a client of the API server that a file names, or of the cluster whose pod this process is in.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Client> {
    let mut config = match kubeconfig {
        Some(file) => {
            let what = || format!("read kubeconfig {}", file.display());
            let read = Kubeconfig::read_from(file).context(what)?;
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(read, &options).await;
            config.context(what)?
        }
        None => Config::incluster().map_err(|e| {
            Error::new("cannot find the API server: this process is in no pod")
                .hint("name the API server with --kubeconfig FILE")
                .caused_by(e)
        })?,
    };
    config.connect_timeout = Some(PATIENCE);
    config.write_timeout = Some(PATIENCE);
    config.read_timeout = Some(SILENCE);
    // Each task has a pace and a line in the log of its own.
    config.default_retry = false;
    Client::try_from(config).context(|| "connect to the API server")
}

/// The time in which each connection has something to read, at the latest the end of a watch.
const SILENCE: Duration = Duration::from_secs(75);

/// Returns the claim with a name; none if there is none. Only the API itself tells that: a 404 of a proxy, or of a server
/// without the API, does not.
pub(crate) async fn claim(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<ResourceClaim>> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), namespace);
    let read = async {
        let mut tries = 1;
        loop {
            match claims.get(name).await {
                Err(kube::Error::Api(status)) if is_without(&status, name) => return Ok(None),
                // It asks to try again soon.
                Err(kube::Error::Api(status))
                    if [429, 503, 504].contains(&status.code) && tries < TRIES.0 =>
                {
                    tries += 1;
                    tokio::time::sleep(TRIES.1).await;
                }
                other => return other.map(Some),
            }
        }
    };
    let found = in_time(read).await;
    found.context(|| format!("read claim {namespace}/{name}"))
}

/// Returns the objects of a kind in all namespaces, or those with these fields.
async fn list<K>(client: &Client, fields: Option<String>) -> Result<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let selected = ListParams {
        field_selector: fields,
        ..ListParams::default()
    };
    Ok(in_time(api.list(&selected)).await?.items)
}

/// Returns the pods that are bound to a node.
pub(crate) async fn pods(client: &Client, node: &str) -> Result<Vec<Pod>> {
    let pods = list(client, Some(format!("spec.nodeName={node}"))).await;
    pods.context(|| "list the pods of this node")
}

/// Returns whether the API says that there is no claim with this name.
fn is_without(status: &Status, claim: &str) -> bool {
    let named = |details: &StatusDetails| details.kind == "resourceclaims" && details.name == claim;
    status.code == 404 && status.details.as_ref().is_some_and(named)
}

/// Returns the selector of the ResourceSlices of this driver on a node.
pub(crate) fn slices_of(node: &str) -> String {
    format!("spec.driver={},spec.nodeName={node}", DRIVER)
}

/// Returns the ResourceSlices of this driver's node, as soon as the API server answers.
pub(crate) async fn slices_at_last(client: &Client, node: &str) -> Vec<ResourceSlice> {
    let mut obstacles = Obstacles::default();
    loop {
        let slices = list(client, Some(slices_of(node))).await;
        match slices.context(|| "list the ResourceSlices of this node") {
            Ok(slices) => return slices,
            Err(e) => obstacles.warn(&e),
        }
        tokio::time::sleep(obstacles.pause()).await;
    }
}

/// Waits for an answer of the API server, but not without an end.
pub(crate) async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(cause),
        Err(_) => Err(late()),
    }
}

/// Returns a failure in words.
fn cause(e: kube::Error) -> Error {
    match e {
        kube::Error::Api(status) => Error::new(format!(
            "the API server has answered {}: {}",
            status.code, status.message
        )),
        e => Error::new("the API server does not answer").caused_by(e),
    }
}

fn late() -> Error {
    Error::new(format!(
        "the API server has not answered for {} seconds",
        PATIENCE.as_secs()
    ))
}

/// Creates an event in its namespace, unless it is there.
pub(crate) async fn create_event(client: &Client, event: &events::Event) -> Result<()> {
    let events: Api<events::Event> =
        Api::namespaced(client.clone(), &event.namespace().unwrap_or_default());
    let create = async {
        match events.create(&PostParams::default(), event).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => created.map(drop),
        }
    };
    let what = || {
        let of = event.regarding.clone().unwrap_or_default();
        let kind = of.kind.unwrap_or_default().to_lowercase();
        format!("create an event of {kind} {}", of.name.unwrap_or_default())
    };
    let created = in_time(create).await.context(what);
    created.map_err(|e| e.hint("give the account of runmig-dra the rights of docs/dra.md"))
}

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
    let hint = "give the account of runmig-dra the rights of docs/dra.md, or see why the API server is away";
    let written = in_time(answer).await.context(what);
    let Some(written) = written.map_err(|e| e.hint(hint))? else {
        return Ok(Written::Lost);
    };
    let entries = written.status.and_then(|status| status.devices);
    Ok(match entries.is_some_and(|entries| !entries.is_empty()) {
        true => Written::Done,
        false => Written::Dropped,
    })
}
