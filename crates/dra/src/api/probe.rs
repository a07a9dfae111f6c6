//! Questions to the API server that change nothing: its version, its feature gates, rights, and other drivers.

use super::{Client, in_time, list};
use crate::resource_slices::{counter_slice, pool};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use kube::api::{GetParams, PostParams};
use kube::core::Request;
use kube::{Api, ResourceExt};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::programs::DRIVER;
use serde_json::{Value, json};
use std::fmt::Debug;

/// The first version with the form of counters that this driver publishes.
const MINOR: u32 = 36;
/// The number of a part that no node needs, so that the probe names no ResourceSlice of the driver.
const PART: usize = 999;

/// A right: a verb, the group of the API, and a resource or a subresource of it.
pub(crate) type Right = [&'static str; 3];

/// Checks that the API server is new enough for counters.
///
/// # Errors
/// It is too old, or does not answer in time.
pub(crate) async fn require_version(client: &Client) -> Result<()> {
    let info = in_time(client.apiserver_version()).await;
    let info = info.context(|| "read the version of the API server")?;
    let version = format!("{}.{}", info.major, info.minor);
    if is_new_enough(&version) {
        return Ok(());
    }
    Err(Error::new(format!(
        "cannot publish GPUs: the API server has version {version}, and counters need 1.{MINOR}"
    ))
    .hint(format!("upgrade the cluster to Kubernetes 1.{MINOR}")))
}

/// Returns whether a version has the API that this driver needs. Vendors add a sign to the minor number.
fn is_new_enough(version: &str) -> bool {
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    let minor = minor.trim_end_matches(|c: char| !c.is_ascii_digit());
    let numbers = (major.parse::<u32>(), minor.parse::<u32>());
    matches!(numbers, (Ok(major), Ok(minor)) if (major, minor) >= (1, MINOR))
}

/// Returns whether the API server keeps the counters of a ResourceSlice. It writes none.
pub(crate) async fn keeps_counters(client: &Client, node: &str) -> Result<bool> {
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": counter_slice(node, PART)},
        "spec": {
            "driver": DRIVER, "nodeName": node,
            "pool": {"name": pool(node), "generation": 1, "resourceSliceCount": 1},
            "sharedCounters": [{"name": "probe", "counters": {"memory": {"value": "1"}}}],
        },
    });
    let kept: Result<ResourceSlice> = create(client, true, slice).await;
    let kept = kept.context(|| "write a ResourceSlice with counters, as a dry run")?;
    Ok(kept.spec.shared_counters.is_some())
}

/// Returns whether the API server keeps the extended resource of a DeviceClass. It writes none.
pub(crate) async fn keeps_extended_resource(client: &Client) -> Result<bool> {
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": "probe.runmig.dev"},
        "spec": {"extendedResourceName": "runmig.dev/probe"},
    });
    let kept: Result<DeviceClass> = create(client, true, class).await;
    let kept = kept.context(|| "write a DeviceClass with an extended resource, as a dry run")?;
    Ok(kept.spec.extended_resource_name.is_some())
}

/// Creates an object. Returns what the API server keeps of it.
async fn create<K>(client: &Client, dry_run: bool, object: Value) -> Result<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug,
{
    let object: K = serde_json::from_value(object).context(|| "write an object")?;
    let api: Api<K> = Api::all(client.clone());
    let how = PostParams {
        dry_run,
        ..PostParams::default()
    };
    in_time(api.create(&how, &object)).await
}

/// Returns whether a feature gate is on, by the metrics of the API server. Returns none for an unknown gate.
pub(crate) async fn gate(client: &Client, gate: &str) -> Result<Option<bool>> {
    let what = || "read the metrics of the API server";
    let request = Request::new("").get("metrics", &GetParams::default());
    let metrics = in_time(client.request_text(request.context(what)?)).await;
    let metrics = metrics.context(what)?;
    let name = format!("name=\"{gate}\"");
    let mut lines = metrics.lines();
    let line = lines.find(|l| l.starts_with("kubernetes_feature_enabled{") && l.contains(&name));
    Ok(line.map(|line| line.ends_with(" 1")))
}

/// Returns whether this account has a right in all namespaces.
pub(crate) async fn may(client: &Client, [verb, group, resource]: &Right) -> Result<bool> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    // This right is one to a driver's name.
    let name = match subresource {
        "driver" => DRIVER,
        _ => "",
    };
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "group": group, "resource": resource, "subresource": subresource, "verb": verb, "name": name,
        }},
    });
    let answer: Result<SelfSubjectAccessReview> = create(client, false, review).await;
    let answer = answer.context(|| "read the rights of this account")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Returns the DeviceClasses.
pub(crate) async fn classes(client: &Client) -> Result<Vec<DeviceClass>> {
    let classes = list(client, None).await;
    classes.context(|| "list the DeviceClasses")
}

/// Returns the Node object with a name.
pub(crate) async fn node_object(client: &Client, node: &str) -> Result<Option<Node>> {
    let nodes: Api<Node> = Api::all(client.clone());
    let read = in_time(nodes.get_opt(node)).await;
    read.context(|| format!("read the Node {node}"))
}

/// Returns the other driver that gives out the GPUs of a node, in words.
///
/// # Errors
/// Neither the Node object nor the ResourceSlices tell of one, and one of them cannot be read.
pub(crate) async fn rival(client: &Client, node: &str) -> Result<Option<String>> {
    let read = node_object(client, node).await;
    let listed = published(client, NVIDIA, &format!(",spec.nodeName={node}")).await;
    if let Ok(Some(object)) = &read
        && let Some(resource) = device_plugin(object)
    {
        return Ok(Some(format!(
            "NVIDIA's device plugin gives out {resource} on this node"
        )));
    }
    if listed.as_ref().is_ok_and(|list| !list.is_empty()) {
        return Ok(Some(format!(
            "NVIDIA's DRA driver {NVIDIA} publishes the GPUs of this node"
        )));
    }
    read.and(listed).map(|_| None)
}

/// The ResourceSlices for all nodes: a selector with an empty value finds those without a node.
pub(crate) const OF_NO_NODE: &str = ",spec.nodeName=";

/// Returns a ResourceSlice by which another program publishes devices of this driver for all nodes, or for this one, in
/// words. It would be of no use to any of them, since no driver prepares such a device. `among` selects some by more fields.
pub(crate) async fn intruder(client: &Client, node: &str, among: &str) -> Result<Option<String>> {
    let slices = published(client, DRIVER, among).await?;
    Ok(slices.iter().find_map(|slice| intrudes(slice, node)))
}

async fn published(client: &Client, driver: &str, more: &str) -> Result<Vec<ResourceSlice>> {
    let slices = list(client, Some(format!("spec.driver={driver}{more}"))).await;
    slices.context(|| format!("list the ResourceSlices of {driver}"))
}

/// Returns why a ResourceSlice under this driver's name is not one of a `runmig-dra`, if it concerns this node.
fn intrudes(slice: &ResourceSlice, node: &str) -> Option<String> {
    let (name, its) = (slice.name_any(), &slice.spec.pool.name);
    let is_ours = *its == pool(node);
    let of = match slice.spec.node_name.as_deref() {
        Some(of) if (of == node) == is_ours => return None,
        Some(of) => format!("node {of}"),
        None => "no single node".to_owned(),
    };
    Some(format!(
        "another program publishes ResourceSlice {name} of pool {its} for {of} under {}",
        DRIVER
    ))
}

/// The name of NVIDIA's DRA driver.
const NVIDIA: &str = "gpu.nvidia.com";

/// Returns the resource of NVIDIA's device plugin that a node has.
fn device_plugin(node: &Node) -> Option<String> {
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    let is_its = |name: &str| name == "nvidia.com/gpu" || name.starts_with("nvidia.com/mig-");
    let mut all = allocatable.iter();
    let found = all.find(|(name, amount)| is_its(name) && amount.0 != "0");
    found.map(|(name, _)| name.clone())
}

/// Checks that the API server has all that this driver publishes.
///
/// # Errors
/// It is too old, or a gate is off, or it does not answer in time.
pub(crate) async fn require(client: &Client, node: &str) -> Result<()> {
    require_version(client).await?;
    match keeps_counters(client, node).await? {
        true => Ok(()),
        false => Err(without_counters()),
    }
}

/// The error of an API server that drops counters.
pub(crate) fn without_counters() -> Error {
    Error::new(
        "cannot publish GPUs: the feature gate DRAPartitionableDevices is off, and the API server drops counters",
    )
    .hint("remove DRAPartitionableDevices=false from the flags of kube-apiserver and kube-scheduler")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_versions_of_vendors() {
        for new in ["1.36", "1.36+", "1.37", "2.0"] {
            assert!(is_new_enough(new), "{new}");
        }
        for old in ["1.35", "1.9", "1.35+", "1", "", "x.y"] {
            assert!(!is_new_enough(old), "{old}");
        }
    }

    #[test]
    fn finds_resources_of_device_plugin() {
        let node = |name: &str, amount: &str| -> Node {
            serde_json::from_value(json!({"status": {"allocatable": {name: amount, "cpu": "4"}}}))
                .unwrap()
        };
        assert_eq!(
            device_plugin(&node("nvidia.com/mig-1g.10gb", "7")).as_deref(),
            Some("nvidia.com/mig-1g.10gb")
        );
        assert!(device_plugin(&node("nvidia.com/gpu", "8")).is_some());
        // A plugin that is gone leaves its resource with none.
        assert!(device_plugin(&node("nvidia.com/gpu", "0")).is_none());
        assert!(device_plugin(&node("amd.com/gpu", "1")).is_none());
    }
}
