//! The API server: the way to it, the reads of claims, and reports about them.

mod events;
mod status;

pub(crate) mod probe;

use crate::driver;
pub(crate) use events::create_event;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
pub(crate) use kube::Client;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Config};
use runmig_lease::error::{Context, Error, Result};
pub(crate) use status::{Written, set_devices};
use std::path::Path;
use std::time::Duration;

/// The time before the API server is asked again.
const PAUSE: Duration = Duration::from_secs(2);

/// The time for one answer. The kubelet waits 45 seconds for the whole of a Prepare.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Returns a client of the API server that a file names, or of the cluster whose pod this process is in.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Client> {
    let mut config = match kubeconfig {
        Some(file) => {
            let what = || format!("read kubeconfig {}", file.display());
            let read = Kubeconfig::read_from(file).context(what)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(read, &options)
                .await
                .context(what)?
        }
        None => Config::incluster().map_err(|e| {
            Error::new("cannot find the API server: this process is in no pod")
                .hint("name the API server with --kubeconfig FILE")
                .caused_by(e)
        })?,
    };
    config.connect_timeout = Some(PATIENCE);
    config.write_timeout = Some(PATIENCE);
    Client::try_from(config).context(|| "connect to the API server")
}

/// Returns the claim with a name; none if there is none.
pub(crate) async fn claim(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<ResourceClaim>> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), namespace);
    in_time(claims.get_opt(name))
        .await
        .context(|| format!("read claim {namespace}/{name}"))
}

/// Returns the pods that are bound to a node.
pub(crate) async fn pods(client: &Client, node: &str) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::all(client.clone());
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let list = in_time(pods.list(&here)).await;
    Ok(list.context(|| "list the pods of this node")?.items)
}

/// Returns the ResourceSlices of this driver on a node.
pub(crate) async fn slices(client: &Client, node: &str) -> Result<Vec<ResourceSlice>> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let ours = ListParams::default().fields(&slices_of(node));
    let list = in_time(slices.list(&ours)).await;
    Ok(list
        .context(|| "list the ResourceSlices of this node")?
        .items)
}

/// Returns the selector of the ResourceSlices of this driver on a node.
pub(crate) fn slices_of(node: &str) -> String {
    format!("spec.driver={},spec.nodeName={node}", driver::NAME)
}

/// Returns the ResourceSlices of this driver's node, as soon as the API server answers.
pub(crate) async fn slices_at_last(client: &Client, node: &str) -> Vec<ResourceSlice> {
    loop {
        match slices(client, node).await {
            Ok(slices) => return slices,
            Err(e) => tracing::warn!("{}", e.line()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits for an answer of the API server, but not without an end.
pub(crate) async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Err(kube::Error::Api(status))) => Err(Error::new(format!(
            "the API server has answered {}: {}",
            status.code, status.message
        ))),
        Ok(answer) => answer.because(|| "the API server does not answer"),
        Err(_) => Err(Error::new(format!(
            "the API server has not answered for {} seconds",
            PATIENCE.as_secs()
        ))),
    }
}
