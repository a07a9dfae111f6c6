//! Folders of CDI files that the driver cannot write, and CDI files of others that it cannot use.

use crate::cluster::{Cluster, POOL};
use runmig_dra::kubelet::messages::Claim;
use testkit::prelude::*;
use testkit::process::Killed;

/// Failure: the folder of CDI files is full or read-only; a driver's file of the node's CDI specification is missing
#[tokio::test]
async fn names_problems_of_cdi() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    let devices = cluster.devices().await;
    let claim = cluster.claim("cdi", &devices[3], POOL).await;
    names_folder(&cluster, &claim, "ro,mode=0755", "Read-only file system").await;
    let full = "No space left on device";
    names_folder(&cluster, &claim, "size=4k,mode=0755", full).await;
    names_files_of_driver(&mut cluster, &claim).await;
    cluster.delete_claim("cdi").await;
}

/// Prepare names folder and cause, leaves no half-written file, and succeeds after the repair.
async fn names_folder(cluster: &Cluster, claim: &Claim, options: &str, cause: &str) {
    let mounted = Mounted::tmpfs(&cluster.at("cdi"), options);
    let filler = (!options.starts_with("ro")).then(|| mounted.fill(0));
    let file = cluster.cdi_file(claim);
    for _ in 0..2 {
        let error = cluster.prepare(claim).await.error;
        let object = format!("cannot write CDI file {}: ", file.display());
        begins_with(
            &error,
            &format!("cannot prepare claim default/cdi: {object}"),
        );
        has(&error, cause);
    }
    if let Some(filler) = filler {
        assert_eq!(cluster.cdi_files(), ["filler"]);
        fs::remove_file(filler).unwrap();
    } else {
        assert_eq!(cluster.cdi_files(), [""; 0]);
        drop(mounted);
    }
    cluster.prepared(claim).await;
    assert!(file.exists());
    assert_eq!(cluster.starts(), [3]);
    cluster.unprepare(claim).await;
    cluster.is_empty();
}

/// The driver sees the node's CDI specifications in a folder of this test.
/// Failure: another vendor's CDI file is broken
async fn names_files_of_driver(cluster: &mut Cluster, claim: &Claim) {
    let vendor = cluster.at("vendor");
    fs::create_dir(&vendor).unwrap();
    let script = "mount -t tmpfs -o mode=0755 tmpfs /run && mkdir /run/cdi && mount --bind \"$0\" /run/cdi && exec \"$@\"";
    let mut command = Command::new("unshare");
    // The driver looks at the files of the node as process 1 sees them.
    let own = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    command.args(own).args(["sh", "-c", script]).arg(&vendor);
    command.arg(env!("CARGO_BIN_EXE_runmig-dra"));
    cluster.end_driver();
    let config = fs::read_to_string(cluster.at("config.toml")).unwrap();
    let config = config.replace("driver_files = \"none\"", "driver_files = \"auto\"");
    fs::write(cluster.at("config.toml"), config).unwrap();
    let driver = cluster.as_driver(command, "driver.log").spawn();
    cluster.driver = Some(Killed(driver.unwrap()));

    let files = |library: &str| {
        let mount = json!({"hostPath": library, "containerPath": "/usr/lib/libcuda.so.1"});
        let file = json!({
            "cdiVersion": "0.6.0", "kind": "nvidia.com/gpu",
            "devices": [{"name": "all", "containerEdits": {"env": ["A=b"]}}],
            "containerEdits": {"mounts": [mount]},
        });
        fs::write(vendor.join("nvidia.json"), file.to_string()).unwrap();
    };
    let error = cluster.prepare(claim).await.error;
    has(
        &error,
        "cannot find a CDI specification of nvidia.com/gpu or ",
    );
    files("/bin/sh");
    // Broken, and of another vendor: the engine does not care either.
    let broken = "{\"kind\": \"vendor.example.com/nic\"";
    fs::write(vendor.join("other.json"), broken).unwrap();
    cluster.prepared(claim).await;
    cluster.says(0, "/var/run/cdi/other.json").await;
    cluster.unprepare(claim).await;

    files("/nowhere/libcuda.so.570");
    let error = cluster.prepare(claim).await.error;
    let words =
        "cannot use CDI specification /var/run/cdi/nvidia.json: /nowhere/libcuda.so.570 is missing";
    has(&error, words);
    has(&error, "nvidia-ctk cdi generate");
    cluster.is_empty();
    files("/bin/sh");
    cluster.prepared(claim).await;
    cluster.unprepare(claim).await;
}
