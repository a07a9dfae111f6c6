//! An API server whose place another one takes, with an older state, as after the restore of a backup.

use crate::cluster::{self, Cluster, POOL, until};
use crate::looks::{on_record, warns_once};
use crate::proxy::Proxy;
use crate::support::{self, ControlPlane};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use testkit::prelude::*;

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The ResourceSlices follow the node again, although the driver has nothing new to write. A claim that the older state
/// lacks ends, unless a process uses its slice.
/// Failure: the API server is away for long, and comes back with an older state
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survives_restored_backup() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    let proxy = Proxy::start(&mut cluster.plane).await;
    cluster.start_driver();
    let devices = cluster.devices().await;
    let kept = cluster.claim("kept", &devices[0], POOL).await;
    cluster.prepared(&kept).await;

    // Nothing of the driver's is under way now: all that follows is later than the backup.
    cluster.plane.stop("etcd");
    copy(&cluster.at("etcd"), &cluster.at("backup"));
    cluster.plane.start_again("etcd");
    support::answers(&cluster.client).await;
    let before = cluster.slices().await;
    let lost = cluster.claim("lost", &devices[1], POOL).await;
    let used = cluster.claim("used", &devices[2], POOL).await;
    for claim in [&lost, &used] {
        cluster.prepared(claim).await;
    }
    let [of_lost, of_used] = [1, 2].map(|start| hold(&cluster, start));
    // A foreign instance lowers counters, so the ResourceSlices of the backup are out of date.
    let place = ["--gpu", "0", "--profile", "1g.10gb", "--start", "6"];
    cluster.sim("create", &place);
    let mut now = before.clone();
    until("the counters follow the instance", async || {
        cluster.poke();
        now = cluster.slices().await;
        now != before
    })
    .await;
    assert_eq!(on_record(&cluster), names(&["kept", "lost", "used"]));
    // A server that starts writes some objects itself. The versions do not catch up by that.
    write_often(&cluster).await;

    let mut older = ControlPlane::new(&support::programs().unwrap());
    copy(&cluster.at("backup"), &older.at("etcd"));
    older.start(cluster::TOKENS, &cluster::FLAGS);
    let client = support::client(&older.kubeconfig("kubeconfig", "secret")).await;
    support::answers(&client).await;
    let from = cluster.log(0).len();
    cluster.client = client;
    // No request fails, and the versions that the driver has are those of the future.
    proxy.lead_to(&mut older).await;

    until("the ResourceSlices are those of now", async || {
        cluster.slices().await == now
    })
    .await;
    for name in ["lost", "used"] {
        let kept = format!("claim default/{name} (pod default/pod-of-{name}) keeps its slice");
        cluster.says(from, &kept).await;
    }
    warns_once(&cluster.log(from));
    drop(of_lost);
    cluster.start_driver();
    let released = "claim default/lost (pod default/pod-of-lost) is released: the claim does not exist any more";
    cluster.says(from, released).await;
    assert_eq!(on_record(&cluster), names(&["kept", "used"]));
    assert_eq!(cluster.starts(), [0, 2, 6]);
    cluster.prepared(&kept).await;
    drop(of_used);
    cluster.start_driver();
    until("the claim ends with its process", async || {
        on_record(&cluster) == names(&["kept"])
    })
    .await;
}

async fn write_often(cluster: &Cluster) {
    let namespaces = cluster.all::<Namespace>();
    for at in 0..1000 {
        let label = Patch::Merge(json!({"metadata": {"labels": {"at": at.to_string()}}}));
        let write = PatchParams::default();
        namespaces.patch("default", &write, &label).await.unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    said(Command::new("cp").arg("-a").args([from, to])).ok();
}

/// Starts a process that has the instance at this place open.
fn hold(cluster: &Cluster, start: u64) -> Going {
    let instances = cluster.instances();
    let at = |i: &&Value| i["placement"]["start"] == start;
    let id = instances.iter().find(at).unwrap()["id"].to_string();
    let mut command = Command::new(program("nvml-sim"));
    command.arg("hold").arg(cluster.at("machine"));
    command.args(["--gpu", "0", "--gi", &id, "--ci", "0"]);
    let mut holder = going(command.stdin(Stdio::null()));
    holder.until("holding");
    holder
}
