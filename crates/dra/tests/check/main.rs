//! `runmig-dra check` and `show`, beside a real API server. Each case causes a finding.

#[path = "../support/cluster.rs"]
mod cluster;
#[path = "../support/proxy.rs"]
mod proxy;

use cluster::support;
use cluster::{Cluster, POOL, create, slice_of, until};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use runmig_dra::publish::publish;
use runmig_dra::resource_slices::objects::Wanted;
use testkit::prelude::*;
use tokio::sync::watch;

/// Calls the driver with a verb. Returns its exit status and both outputs.
fn call(cluster: &Cluster, arguments: &[&str], config: &str) -> (i32, String, String) {
    let mut driver = Command::new(env!("CARGO_BIN_EXE_runmig-dra"));
    driver.args(arguments).args(["--node", "node"]);
    let said = said(driver.env("RUNMIG_CONFIG", cluster.at(config)));
    (said.status.code().unwrap(), said.stdout, said.stderr)
}

/// A check, with some of its options replaced. Returns its exit status, and its lines with the errors.
fn check(cluster: &Cluster, replaced: &[(&str, &Path)], config: &str) -> (i32, String) {
    let mut options = vec![
        ("--kubeconfig", cluster.at("kubeconfig")),
        ("--cdi-dir", cluster.at("cdi")),
        ("--claim-hook", "/bin/true".into()),
        ("--containerd-config", cluster.at("containerd.toml")),
    ];
    for (name, path) in replaced {
        let option = options.iter_mut().find(|(option, _)| option == name);
        option.unwrap().1 = path.to_path_buf();
    }
    let mut arguments = vec!["check"];
    for (name, path) in &options {
        arguments.extend([*name, path.to_str().unwrap()]);
    }
    let (status, lines, errors) = call(cluster, &arguments, config);
    (status, lines + &errors)
}

/// Expects a finding with this status and these words.
#[track_caller]
fn finds(cluster: &Cluster, replaced: &[(&str, &Path)], config: &str, finding: (&str, &str)) {
    let (status, lines) = check(cluster, replaced, config);
    let (begin, words) = (format!("{:<6}", finding.0), finding.1);
    let mut found = lines.lines();
    let found = found.any(|l| l.starts_with(&begin) && l.contains(words));
    let is_right = found && (finding.0 != "fail" || status == 1);
    assert!(is_right, "no {begin}\"{words}\" in\n{lines}");
}

#[track_caller]
fn fails(cluster: &Cluster, replaced: &[(&str, &Path)], config: &str, words: &str) {
    finds(cluster, replaced, config, ("fail", words));
}

/// Nothing is published, and an account without rights is named.
/// Failure: the API server is older than 1.36, or `DRAPartitionableDevices` is off
#[tokio::test]
async fn names_gates_and_rights() {
    let gates = "--feature-gates=DRAPartitionableDevices=false,DRAExtendedResource=false,\
                 DRADeviceBindingConditions=false,DRAResourceClaimDeviceStatus=false,\
                 DRAResourceClaimGranularStatusAuthorization=false";
    // Kubernetes 1.37 lets two of them be off only while it emulates 1.36.
    let emulated = "--emulated-version=1.36";
    let flags = ["--authorization-mode=RBAC", emulated, gates];
    let Some(cluster) = Cluster::up_with(&flags).await else {
        return;
    };
    let line = "cannot publish GPUs: the feature gate DRAPartitionableDevices is off";
    cluster.says(0, line).await;
    assert_eq!(cluster.published().await, []);
    takes_back_what_lost_its_counters(&cluster).await;
    names_gate_of_status(&cluster).await;
    for gate in ["DRAPartitionableDevices", "DRAExtendedResource"] {
        let line = format!("cannot use feature gate {gate}: it is off");
        fails(&cluster, &[], "config.toml", &line);
    }
    let line = "cannot use feature gate DRAResourceClaimDeviceStatus: it is off";
    finds(&cluster, &[], "config.toml", ("warn", line));

    let file = fs::read_to_string(cluster.at("kubeconfig")).unwrap();
    let plain = cluster.at("plain");
    fs::write(&plain, file.replace("\"secret\"", "\"plain\"")).unwrap();
    let replaced = [("--kubeconfig", plain.as_path())];
    // The API server makes its own roles after its start.
    until("every account may read the version", async || {
        let (_, lines) = check(&cluster, &replaced, "config.toml");
        !lines.contains("cannot read the version")
    })
    .await;
    for right in ["list resourceslices", "get resourceclaims", "watch pods"] {
        let line = format!("cannot {right}: this account lacks the right");
        fails(&cluster, &replaced, "config.toml", &line);
    }
    for right in [
        "patch resourceclaims/status",
        "associated-node:patch resourceclaims/driver",
        "create events",
        "get nodes",
    ] {
        let line = format!("cannot {right}: this account lacks the right");
        finds(&cluster, &replaced, "config.toml", ("warn", &line));
    }
}

/// An API server that had the gate at the driver's start may lose it later.
/// Failure: the API server drops counters only after the driver's start
async fn takes_back_what_lost_its_counters(cluster: &Cluster) {
    let api = cluster.all::<ResourceSlice>();
    let consumes = json!([{"counterSet": "gpu", "counters": {"memory": {"value": "1"}}}]);
    let devices = json!([{"name": "a", "consumesCounters": consumes}]);
    let of = json!({"nodeName": "other", "devices": devices});
    let slice = slice_of("runmig.other-1g", "gpu.runmig.dev", "runmig.other", &of);
    let its = WatchParams::default().fields("spec.nodeName=other");
    let mut changes = Box::pin(api.watch(&its, "0").await.unwrap());
    let (told, wanted) = watch::channel(Vec::new());
    told.send_replace(vec![Wanted::of(&serde_json::from_value(slice).unwrap())]);
    let (mut seen, mut is_over) = (Vec::new(), false);
    let publishing = publish(cluster.client.clone(), "other", wanted);
    let looking = until("the ResourceSlice is gone again", async || {
        match changes.next().await.unwrap().unwrap() {
            WatchEvent::Added(_) => seen.push("added"),
            WatchEvent::Deleted(_) => is_over = true,
            _ => {}
        }
        is_over
    });
    tokio::select! {
        () = publishing => panic!("it goes on"),
        done = tokio::time::timeout(Duration::from_secs(120), looking) => done.unwrap(),
    }
    assert_eq!(seen, ["added"]);
}

async fn names_gate_of_status(cluster: &Cluster) {
    let (_, shown, _) = call(cluster, &["show"], "config.toml");
    let mut words = shown.split_whitespace();
    let is_device = |word: &&str| word.starts_with("gpu-") && word.contains("-mig-1g-10gb-");
    let device = words.find(is_device).unwrap();
    let claim = cluster.claim("gate", device, POOL).await;
    cluster.prepared(&claim).await;
    let line = "cannot write the status of claims: the API server drops status.devices; hint: turn on the feature gate \
                DRAResourceClaimDeviceStatus";
    cluster.says(0, line).await;
    cluster.unprepare(&claim).await;
}

/// Failure: rights, CDI, the hook, the kubelet's folder or a DeviceClass are wrong
// The proxy answers while the test waits for a program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_problems_of_node() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    cluster.publishes().await;
    let none = "cannot publish GPUs: the cluster has no Node node";
    fails(&cluster, &[], "config.toml", none);
    let node = json!({"metadata": {"name": "node"}});
    create(&cluster.all::<Node>(), node).await;
    let (status, lines) = check(&cluster, &[], "config.toml");
    assert!(status == 0 && !lines.contains("fail  "), "{lines}");
    // For migctl doctor, which decides: data, and no failure.
    let (status, data, _) = call(&cluster, &["check", "--json"], "config.toml");
    let first: Value = serde_json::from_str(data.lines().next().unwrap()).unwrap();
    assert_eq!((status, &first["id"]), (0, &"kubernetes.gpus".into()));
    shows_what_it_publishes(&cluster).await;
    names_files(&cluster);
    names_classes(&cluster).await;
    names_intruders(&cluster).await;
    names_answers(&mut cluster).await;
    withdraws_beside_other_drivers(&mut cluster).await;
}

fn names_files(cluster: &Cluster) {
    let at = |name: &str| cluster.at(name);
    for (name, mode) in [("open", 0o777), ("hook", 0o777), ("anyone.toml", 0o666)] {
        match name {
            "open" => fs::create_dir(at(name)).unwrap(),
            _ => fs::write(at(name), "version = 3\n").unwrap(),
        }
        chmod(at(name), mode);
    }
    fs::write(at("off.toml"), "version = 3\nenable_cdi = false\n").unwrap();
    fs::write(at("old.toml"), "version = 2\n").unwrap();
    fs::write(at("elsewhere.toml"), "cdi_spec_dirs = [\"/etc/cdi\"]\n").unwrap();
    let lacks = format!("lacks {}", at("cdi").display());
    for (option, file, finding) in testkit::rows! {
        "--containerd-config", "off.toml" => ("fail", "switches CDI off");
        "--containerd-config", "old.toml" => ("warn", "only with enable_cdi = true");
        "--containerd-config", "elsewhere.toml" => ("fail", lacks.as_str());
        "--containerd-config", "anyone.toml" => ("warn", "cannot read the configuration of containerd");
        "--cdi-dir", "open" => ("fail", "cannot use CDI folder");
        "--claim-hook", "hook" => ("fail", "cannot use hook");
        "--claim-hook", "no-hook" => ("fail", "no-hook");
        "--kubeconfig", "nowhere" => ("fail", "cannot read kubeconfig");
    } {
        finds(cluster, &[(option, &at(file))], "config.toml", finding);
    }
    let config = fs::read_to_string(at("config.toml")).unwrap();
    let without = "[policy]\nexclude_gpus = [0]\n[kubernetes]";
    for (from, to, finding) in testkit::rows! {
        "/kubelet\"", "/elsewhere\"" => ("fail", "cannot register at the kubelet");
        "[kubernetes]", without => ("fail", "cannot publish GPUs: no GPU");
        "[kubernetes]", without => ("warn", "cannot publish GPU 0 at ");
        "libnvidia-ml", "libno-ml" => ("fail", "libno-ml.so.1");
    } {
        fs::write(at("changed.toml"), config.replacen(from, to, 1)).unwrap();
        finds(cluster, &[], "changed.toml", finding);
    }
}

async fn names_classes(cluster: &Cluster) {
    let none = "the cluster has no DeviceClass with nvidia.com/mig-";
    finds(cluster, &[], "config.toml", ("warn", none));
    let classes = cluster.all::<DeviceClass>();
    for (name, finding) in testkit::rows! {
        "mig-1g.10gb" => ("ok", "each extended resource has one DeviceClass");
        "other" => ("fail", "DeviceClass other has the same extended resource");
    } {
        let class = json!({
            "metadata": {"name": name},
            "spec": {"extendedResourceName": "nvidia.com/mig-1g.10gb"},
        });
        create(&classes, class).await;
        finds(cluster, &[], "config.toml", finding);
    }
}

async fn names_intruders(cluster: &Cluster) {
    let slices = cluster.all::<ResourceSlice>();
    for (of, words) in testkit::rows! {
        json!({"nodeName": "other"}) => "for node other under gpu.runmig.dev";
        json!({"allNodes": true}) => "for no single node under gpu.runmig.dev";
    } {
        let theirs = slice_of("intruder", "gpu.runmig.dev", POOL, &of);
        create(&slices, theirs).await;
        let line =
            format!("another program publishes ResourceSlice intruder of pool runmig.node {words}");
        fails(cluster, &[], "config.toml", &line);
        if words.contains("no single node") {
            cluster.says(0, &line).await;
        }
        let gone = slices.delete("intruder", &DeleteParams::default()).await;
        gone.unwrap();
    }
}

/// The proxy gives the answers that an older or a restricted API server would give.
async fn names_answers(cluster: &mut Cluster) {
    let [port] = support::free_ports();
    let nobody = cluster.plane.kubeconfig_for(port, "nobody", "secret");
    let away = "cannot read the version of the API server: the API server does not answer";
    fails(cluster, &[("--kubeconfig", &nobody)], "config.toml", away);
    let proxy = proxy::Proxy::start(&mut cluster.plane).await;
    let old = "{\"major\": \"1\", \"minor\": \"35\", \"gitVersion\": \"v1.35.0\", \"gitCommit\": \"\", \
               \"gitTreeState\": \"\", \"buildDate\": \"\", \"goVersion\": \"\", \"compiler\": \"\", \"platform\": \"\"}";
    let old = proxy::Fault::Body("/version", 200, old);
    let gate = |gate: &str| format!("cannot find out whether feature gate {gate} is on");
    let denied = |part| proxy::Fault::Body(part, 403, "");
    for (fault, status, words) in testkit::rows! {
        old, "fail" => "the API server has version 1.35".to_owned();
        proxy::Fault::Body("/selfsubjectaccessreviews", 500, ""), "fail" =>
            "cannot read the rights of this account".to_owned();
        denied("/deviceclasses"), "warn" => "cannot list the DeviceClasses".to_owned();
        denied("/deviceclasses"), "warn" => gate("DRAExtendedResource");
        denied("/resourceslices"), "warn" => gate("DRAPartitionableDevices");
        denied("/resourceslices"), "warn" => "cannot list the ResourceSlices of gpu.nvidia.com".to_owned();
        denied("/resourceslices"), "warn" => "cannot list the ResourceSlices of gpu.runmig.dev".to_owned();
        denied("/metrics"), "warn" => gate("DRAResourceClaimDeviceStatus");
        denied("/nodes"), "warn" => "cannot read the Node node".to_owned();
    } {
        proxy.set(Some(fault));
        finds(cluster, &[], "config.toml", (status, &words));
    }
    proxy.set(None);
}

/// The same documents as the API server has.
async fn shows_what_it_publishes(cluster: &Cluster) {
    let (status, shown, errors) = call(cluster, &["show"], "config.toml");
    assert_eq!((status, errors.as_str()), (0, ""));
    let shown: Vec<ResourceSlice> = { shown.split("\n---\n") }
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    let mut published = cluster.published().await;
    published.sort_by_key(|slice| slice.metadata.name.clone());
    let specs = |slices: &[ResourceSlice]| -> Vec<Value> {
        slices.iter().map(|slice| json!(slice.spec)).collect()
    };
    assert_eq!(specs(&shown), specs(&published));
}

/// NVIDIA's drivers come later, and go.
/// Failure: NVIDIA's device plugin or DRA driver is on the node, or comes later
async fn withdraws_beside_other_drivers(cluster: &mut Cluster) {
    let nodes = cluster.all::<Node>();
    let amount = async |amount: &str| {
        let status = json!({"status": {"allocatable": {"nvidia.com/gpu": amount}}});
        let (write, patch) = (PatchParams::default(), Patch::Merge(status));
        let written = nodes.patch_status("node", &write, &patch);
        written.await.unwrap();
    };
    amount("8").await;
    let line = "NVIDIA's device plugin gives out nvidia.com/gpu on this node";
    fails(cluster, &[], "config.toml", line);
    until("the driver withdraws its devices", async || {
        cluster.published().await.is_empty()
    })
    .await;
    cluster.says(0, line).await;
    node_has_event(cluster, line).await;

    amount("0").await;
    let api = cluster.all::<ResourceSlice>();
    let here = json!({"nodeName": "node"});
    create(&api, slice_of("theirs", "gpu.nvidia.com", "node", &here)).await;
    let line = "NVIDIA's DRA driver gpu.nvidia.com publishes the GPUs of this node";
    fails(cluster, &[], "config.toml", line);
    // Also from its start on.
    cluster.start_driver();
    cluster.says(0, line).await;
    assert_eq!(cluster.published().await, []);
    node_has_event(cluster, line).await;
    // The next process tells the same, and the API server has it.
    let told = cluster.log(0).len();
    cluster.start_driver();
    cluster.says(told, line).await;
    let delete = DeleteParams::default();
    api.delete("theirs", &delete).await.unwrap();
    cluster.publishes().await;
    let lines = cluster.log(told);
    let has_failed = |line: &String| line.contains("cannot create an event");
    assert!(!lines.iter().any(has_failed), "{lines:?}");
}

/// As `kubectl describe node` finds it.
async fn node_has_event(cluster: &Cluster, line: &str) {
    let events = cluster.here::<Event>();
    let its = "involvedObject.kind=Node,involvedObject.uid=node,reason=OtherDriver";
    let of_node = ListParams::default().fields(its);
    until("the node has an event", async || {
        let events = events.list(&of_node).await.unwrap().items;
        let mut notes = events.into_iter().filter_map(|event| event.message);
        notes.any(|note| note.starts_with(line))
    })
    .await;
}
