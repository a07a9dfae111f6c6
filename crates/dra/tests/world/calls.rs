//! The kubelet's calls, and looks at the ledger, the log and the API.

use crate::cluster::{Cluster, until};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice, ResourceSliceSpec};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use runmig_dra::kubelet::messages::{Claim, PrepareRequest, UnprepareRequest};
use runmig_lease::config::Config;
use runmig_lease::store::Held;
use runmig_lease::{Leases, NoBundles};
use testkit::prelude::*;

/// The ResourceSlices of the driver, by name. Their devices are sorted: the order follows each claim a moment later.
pub async fn slices(cluster: &Cluster) -> BTreeMap<String, ResourceSliceSpec> {
    let api: Api<ResourceSlice> = Api::all(cluster.client.clone());
    let ours = ListParams::default().fields("spec.driver=gpu.runmig.dev");
    let list = api.list(&ours).await.unwrap().items.into_iter();
    let sorted = |mut spec: ResourceSliceSpec| {
        let devices = spec.devices.iter_mut();
        devices.for_each(|devices| devices.sort_by_key(|device| device.name.clone()));
        spec
    };
    list.map(|slice| (slice.metadata.name.unwrap(), sorted(slice.spec)))
        .collect()
}

/// Deletes all of them, as a kubelet does at its start.
pub async fn wipe(cluster: &Cluster) {
    let api: Api<ResourceSlice> = Api::all(cluster.client.clone());
    for name in slices(cluster).await.keys() {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// Waits until the driver has published. Returns the names of the devices of the smallest profile, by place.
pub async fn devices(cluster: &Cluster) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    until("the ResourceSlices are published", async || {
        let slices = slices(cluster).await;
        let devices = slices.values().filter_map(|spec| spec.devices.clone());
        names = devices.flatten().map(|device| device.name).collect();
        let count = slices
            .values()
            .next()
            .map(|spec| spec.pool.resource_slice_count);
        count == i64::try_from(slices.len()).ok()
    })
    .await;
    names.retain(|name| name.contains("-mig-1g-10gb-") && !name.contains("plus"));
    names.sort();
    names
}

/// Asks for a claim. Returns the error, empty after a success.
pub async fn prepare(cluster: &Cluster, claim: &Claim) -> String {
    let claims = vec![claim.clone()];
    let mut plugin = cluster.plugin().await;
    let answer = plugin.node_prepare_resources(PrepareRequest { claims });
    let mut answers = answer.await.unwrap().into_inner().claims;
    answers.remove(&claim.uid).unwrap().error
}

/// Ends a claim. Returns the error, empty after a success.
pub async fn try_unprepare(cluster: &Cluster, claim: &Claim) -> String {
    let claims = vec![claim.clone()];
    let mut plugin = cluster.plugin().await;
    let answer = plugin.node_unprepare_resources(UnprepareRequest { claims });
    let mut answers = answer.await.unwrap().into_inner().claims;
    answers.remove(&claim.uid).unwrap().error
}

pub async fn unprepare(cluster: &Cluster, claim: &Claim) {
    assert_eq!(try_unprepare(cluster, claim).await, "");
}

pub async fn delete_claim(cluster: &Cluster, name: &str) {
    let api: Api<ResourceClaim> = Api::default_namespaced(cluster.client.clone());
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// The names of the claims on record.
pub fn on_record(cluster: &Cluster) -> BTreeSet<String> {
    let config = Config::read(&cluster.at("config.toml")).unwrap();
    let leases = Leases::existing(&config, Box::new(NoBundles)).unwrap();
    let held: Vec<Held> = leases.map_or_else(Vec::new, |leases| leases.claims().unwrap());
    let claims = held.iter().filter_map(|held| held.lease.claim());
    claims.map(|claim| claim.name.clone()).collect()
}

/// The lines of the driver's log from a place on, without their times.
pub fn log(cluster: &Cluster, from: usize) -> Vec<String> {
    let log = fs::read_to_string(cluster.at("driver.log")).unwrap_or_default();
    let lines = log.lines().skip(from);
    lines
        .map(|line| {
            line.split_once(' ')
                .map_or(line, |(_, text)| text)
                .trim()
                .to_owned()
        })
        .collect()
}

pub async fn says(cluster: &Cluster, from: usize, words: &str) {
    until(&format!("the log says: {words}"), async || {
        log(cluster, from).iter().any(|line| line.contains(words))
    })
    .await;
}

/// Each warning of these lines is there once.
#[track_caller]
pub fn warns_once(lines: &[String]) {
    let warnings = lines.iter().filter(|line| !line.starts_with("INFO"));
    let mut seen = BTreeSet::new();
    for line in warnings {
        assert!(seen.insert(line), "twice: {line}\nin {lines:#?}");
    }
}
