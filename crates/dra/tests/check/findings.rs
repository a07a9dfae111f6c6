//! Findings about files, the ledger and the API server, each with the state that causes it.

use crate::cluster::{Cluster, until};
use crate::proxy::{Fault, Proxy};
use crate::{check, slices};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Checks, and expects a line of this weight.
#[track_caller]
fn finds(
    cluster: &Cluster,
    replaced: &[(&str, &Path)],
    config: &str,
    (weight, words): (&str, &str),
) {
    let (_, lines) = check(cluster, replaced, config);
    let weight = format!("{weight:<6}");
    let found = lines
        .lines()
        .any(|l| l.starts_with(&weight) && l.contains(words));
    assert!(found, "no {weight}\"{words}\" in\n{lines}");
}

/// Writes a file of the cluster's folder.
fn file(cluster: &Cluster, name: &str, text: &str) -> PathBuf {
    let file = cluster.at(name);
    fs::write(&file, text).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_finding_has_its_cause() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    until("the ResourceSlices are published", async || {
        slices(&cluster).await.len() > 1
    })
    .await;
    names_machine(&cluster);
    names_ledger(&mut cluster);
    names_containerd(&cluster);
    names_classes_and_intruders(&cluster).await;
    names_api_server(&mut cluster).await;
}

fn names_machine(cluster: &Cluster) {
    let config = fs::read_to_string(cluster.at("config.toml")).unwrap();
    let found = |change: (&str, &str), finding| {
        let changed = config.replacen(change.0, change.1, 1);
        assert_ne!(changed, config);
        file(cluster, "changed.toml", &changed);
        finds(cluster, &[], "changed.toml", finding);
    };
    let kubernetes = |more: &str| format!("{more}\n[kubernetes]");
    let warning = "cannot publish GPU 0 at ";
    let policy = kubernetes("[policy]\nexclude_gpus = [0]");
    found(("[kubernetes]", &policy), ("warn", warning));
    let machine = cluster.at("machine");
    let gone = machine.join("gone/libnvidia-ml.so.1");
    let library = machine.join("lib/libnvidia-ml.so.1");
    let [gone, library] = [gone, library].map(|path| format!("{path:?}"));
    found((&library, &gone), ("fail", "libnvidia-ml.so.1"));
    let none = "driver_files = \"none\"\nstate_dir";
    let images = "the images have the driver's files";
    found(("state_dir", none), ("ok", images));
    let cdi = "driver_files = \"cdi\"\nstate_dir";
    let missing = "cannot find the driver's files: ";
    found(("state_dir", cdi), ("fail", missing));
    finds(cluster, &[], "config.toml", ("warn", missing));

    let hook = cluster.at("no-hook");
    let replaced = [("--claim-hook", hook.as_path())];
    finds(cluster, &replaced, "config.toml", ("fail", "no-hook"));
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .args([env!("CARGO_BIN_EXE_runmig-dra"), "check"])
        .args(["--node", "node", "--claim-hook", "/bin/true"])
        .env("RUNMIG_CONFIG", cluster.at("config.toml"))
        .output()
        .unwrap();
    let lines =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    let line = "fail  cannot make slices: this process is not root on the host";
    assert!(lines.contains(line), "{lines}");
}

fn names_ledger(cluster: &mut Cluster) {
    let config = fs::read_to_string(cluster.at("config.toml")).unwrap();
    let moved = config.replace("/state\"", "/other-state\"");
    file(cluster, "moved-state.toml", &moved);
    let none = "this node has no ledger yet";
    finds(cluster, &[], "moved-state.toml", ("ok", none));
    let state = file(cluster, "other-state", "");
    finds(cluster, &[], "moved-state.toml", ("fail", "other-state"));
    fs::remove_file(state).unwrap();

    cluster.end_driver();
    let alone = "no other runmig-dra publishes for this node";
    finds(cluster, &[], "config.toml", ("ok", alone));
    // Nobody can tell what an unreadable record holds.
    let leases = cluster.at("state/leases");
    fs::create_dir_all(&leases).unwrap();
    let damaged = file(cluster, "state/leases/damaged.json", "{");
    let line = format!("cannot read record {}", damaged.display());
    finds(cluster, &[], "config.toml", ("warn", &line));
    fs::remove_file(damaged).unwrap();
    cluster.start_driver();
}

fn names_containerd(cluster: &Cluster) {
    let found = |name: &str, finding| {
        let path = cluster.at(name);
        let replaced = [("--containerd-config", path.as_path())];
        finds(cluster, &replaced, "config.toml", finding);
    };
    let dir = cluster.at("cdi");
    file(cluster, "old.toml", "version = 2\n");
    found(
        "old.toml",
        ("warn", "containerd 1 has CDI only with enable_cdi = true"),
    );
    file(
        cluster,
        "elsewhere.toml",
        "cdi_spec_dirs = [\"/etc/cdi\"]\n",
    );
    let lacks = format!("lacks {}", dir.display());
    found("elsewhere.toml", ("fail", &lacks));
    file(cluster, "on.toml", &format!("cdi_spec_dirs = [{dir:?}]\n"));
    found("on.toml", ("ok", "containerd has CDI by "));
    file(cluster, "anyone.toml", "version = 3\n");
    fs::set_permissions(cluster.at("anyone.toml"), Permissions::from_mode(0o666)).unwrap();
    found(
        "anyone.toml",
        ("warn", "cannot read the configuration of containerd"),
    );
    found(
        "no.toml",
        ("ok", "is missing, so containerd has its default"),
    );
}

async fn names_classes_and_intruders(cluster: &Cluster) {
    let write = PostParams::default();
    let none = "the cluster has no DeviceClass with nvidia.com/mig-";
    finds(cluster, &[], "config.toml", ("warn", none));
    let classes: Api<DeviceClass> = Api::all(cluster.client.clone());
    let ours = json!({
        "metadata": {"name": "mig-1g.10gb"},
        "spec": {"extendedResourceName": "nvidia.com/mig-1g.10gb"},
    });
    let ours: DeviceClass = serde_json::from_value(ours).unwrap();
    classes.create(&write, &ours).await.unwrap();
    let one = "each extended resource has one DeviceClass";
    finds(cluster, &[], "config.toml", ("ok", one));

    let alone = "no other program publishes under the name of this driver";
    finds(cluster, &[], "config.toml", ("ok", alone));
    let slices: Api<ResourceSlice> = Api::all(cluster.client.clone());
    for (of, words) in [
        (
            json!({"nodeName": "other"}),
            "for node other under gpu.runmig.dev",
        ),
        (
            json!({"allNodes": true}),
            "for no single node under gpu.runmig.dev",
        ),
    ] {
        let mut spec = json!({
            "driver": "gpu.runmig.dev", "devices": [{"name": "gpu-0"}],
            "pool": {"name": "runmig.node", "generation": 9, "resourceSliceCount": 1},
        });
        spec.as_object_mut()
            .unwrap()
            .extend(of.as_object().unwrap().clone());
        let theirs = json!({"metadata": {"name": "intruder"}, "spec": spec});
        let theirs: ResourceSlice = serde_json::from_value(theirs).unwrap();
        slices.create(&write, &theirs).await.unwrap();
        let line =
            format!("another program publishes ResourceSlice intruder of pool runmig.node {words}");
        finds(cluster, &[], "config.toml", ("fail", &line));
        if words.contains("no single node") {
            until("the driver names it too", async || {
                let log = fs::read_to_string(cluster.at("driver.log"));
                log.is_ok_and(|log| log.contains(&line))
            })
            .await;
        }
        slices
            .delete("intruder", &DeleteParams::default())
            .await
            .unwrap();
    }
}

/// The proxy gives the answers that an older or a restricted API server would give.
async fn names_api_server(cluster: &mut Cluster) {
    let [port] = crate::support::free_ports();
    let nobody = cluster.plane.kubeconfig_for(port, "nobody", "secret");
    let replaced = [("--kubeconfig", nobody.as_path())];
    let away = "cannot read the version of the API server: the API server does not answer";
    finds(cluster, &replaced, "config.toml", ("fail", away));

    let proxy = Proxy::start(&mut cluster.plane).await;
    let old = "{\"major\": \"1\", \"minor\": \"35\", \"gitVersion\": \"v1.35.0\", \"gitCommit\": \"\", \
               \"gitTreeState\": \"\", \"buildDate\": \"\", \"goVersion\": \"\", \"compiler\": \"\", \"platform\": \"\"}";
    for (part, status, body, finding) in [
        (
            "/version",
            200,
            old,
            (
                "fail",
                "cannot publish GPUs: the API server has version 1.35",
            ),
        ),
        (
            "/selfsubjectaccessreviews",
            500,
            "",
            ("fail", "cannot read the rights of this account"),
        ),
        (
            "/deviceclasses",
            403,
            "",
            ("warn", "cannot list the DeviceClasses"),
        ),
        (
            "/deviceclasses",
            403,
            "",
            (
                "warn",
                "cannot find out whether feature gate DRAExtendedResource is on",
            ),
        ),
        (
            "/resourceslices",
            403,
            "",
            (
                "warn",
                "cannot find out whether feature gate DRAPartitionableDevices is on",
            ),
        ),
        (
            "/resourceslices",
            403,
            "",
            ("warn", "cannot list the ResourceSlices of gpu.nvidia.com"),
        ),
        (
            "/resourceslices",
            403,
            "",
            ("warn", "cannot list the ResourceSlices of gpu.runmig.dev"),
        ),
        (
            "/metrics",
            403,
            "",
            (
                "warn",
                "cannot find out whether feature gate DRAResourceClaimDeviceStatus is on",
            ),
        ),
        ("/nodes", 403, "", ("warn", "cannot read the Node node")),
    ] {
        proxy.set(Some(Fault::Body(part, status, body)));
        finds(cluster, &[], "config.toml", finding);
    }
    proxy.set(None);
}
