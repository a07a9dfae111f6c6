//! An API server whose place another one takes, with an older state, as after the restore of a backup.

use crate::POOL;
use crate::calls::{devices, log, on_record, prepare, says, slices, warns_once};
use crate::cluster::{self, Cluster, sim, until};
use crate::proxy::Proxy;
use crate::support::{self, ControlPlane};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use testkit::prelude::*;

/// A process that has an instance open.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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
    let devices = devices(&cluster).await;
    let kept = cluster.claim("kept", &devices[0], POOL).await;
    assert_eq!(prepare(&cluster, &kept).await, "");

    // Nothing of the driver's is under way now: all that follows is later than the backup.
    cluster.plane.stop("etcd");
    copy(&cluster.at("etcd"), &cluster.at("backup"));
    cluster.plane.start_again("etcd");
    support::answers(&cluster.client).await;
    let before = slices(&cluster).await;
    let lost = cluster.claim("lost", &devices[1], POOL).await;
    let used = cluster.claim("used", &devices[2], POOL).await;
    for claim in [&lost, &used] {
        assert_eq!(prepare(&cluster, claim).await, "");
    }
    let machine = cluster.at("machine");
    let machine = machine.to_str().unwrap();
    let [of_lost, of_used] = [1, 2].map(|start| hold(machine, start));
    // A foreign instance lowers counters, so the ResourceSlices of the backup are out of date.
    sim(&[
        "create",
        machine,
        "--gpu",
        "0",
        "--profile",
        "1g.10gb",
        "--start",
        "6",
    ]);
    let mut now = before.clone();
    until("the counters follow the instance", async || {
        cluster.poke();
        now = slices(&cluster).await;
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
    let from = log(&cluster, 0).len();
    cluster.client = client;
    // No request fails, and the versions that the driver has are those of the future.
    proxy.lead_to(&mut older).await;

    until("the ResourceSlices are those of now", async || {
        slices(&cluster).await == now
    })
    .await;
    for name in ["lost", "used"] {
        let kept = format!("claim default/{name} (pod default/pod-of-{name}) keeps its slice");
        says(&cluster, from, &kept).await;
    }
    warns_once(&log(&cluster, from));
    drop(of_lost);
    cluster.start_driver();
    let released = "claim default/lost (pod default/pod-of-lost) is released: the claim does not exist any more";
    says(&cluster, from, released).await;
    assert_eq!(on_record(&cluster), names(&["kept", "used"]));
    assert_eq!(cluster.starts(), [0, 2, 6]);
    assert_eq!(prepare(&cluster, &kept).await, "");
    drop(of_used);
    cluster.start_driver();
    until("the claim ends with its process", async || {
        on_record(&cluster) == names(&["kept"])
    })
    .await;
}

async fn write_often(cluster: &Cluster) {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    for at in 0..1000 {
        let label = json!({"metadata": {"labels": {"at": at.to_string()}}});
        let label = Patch::Merge(label);
        let write = PatchParams::default();
        namespaces.patch("default", &write, &label).await.unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

fn hold(machine: &str, start: u64) -> Holder {
    let shown = sim(&["show", machine, "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let instances = shown["gpus"][0]["gpuInstances"].as_array().unwrap();
    let at = |i: &&serde_json::Value| i["placement"]["start"] == start;
    let id = instances.iter().find(at).unwrap()["id"].to_string();
    let program = Path::new(env!("CARGO_BIN_EXE_runmig-dra")).with_file_name("nvml-sim");
    let mut command = Command::new(program);
    command.args(["hold", machine, "--gpu", "0", "--gi", &id, "--ci", "0"]);
    let mut holder = command.stdout(Stdio::piped()).spawn().unwrap();
    // Its first line comes when it holds the instance.
    let mut line = String::new();
    let stdout = holder.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    Holder(holder)
}
