//! The kubelet's calls for claims, over the driver's socket, beside a real API server.

#[path = "../support/cluster.rs"]
mod cluster;
mod ending;
mod health;
mod reported;
mod successor;
mod withdrawn;

use cluster::{Cluster, POOL};
use runmig_dra::kubelet::messages::{Claim, ClaimList, Prepared};
use testkit::prelude::*;

/// One API server serves all cases, since it starts in seconds. Each leaves it as it was.
#[tokio::test]
async fn answers_the_kubelet() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    let devices = cluster.devices().await;
    assert_eq!(devices.len(), 7, "{devices:?}");
    repeats_its_answer(&mut cluster, &devices).await;
    serves_claims_at_once(&cluster, &devices).await;
    refuses_stale_claims(&cluster, &devices).await;
    reported::status_agrees_with_migctl(&mut cluster, &devices[3]).await;
    reported::events_name_the_holder(&cluster, &devices[0]).await;
    withdrawn::promises_claims_of_bound_pods(&cluster, &devices[5]).await;
    withdrawn::names_later_pods_of_claim(&cluster, &devices[5]).await;
    withdrawn::sweeps_deleted_claims(&mut cluster, &devices[5]).await;
    withdrawn::sweeps_files_without_lease(&mut cluster, &devices[1]).await;
    health::health_follows_the_machine(&mut cluster, &devices[4]).await;
    ending::signal_leaves_no_call_unanswered(&mut cluster, &devices[6]).await;
    reported::log_has_each_action(&cluster);
    successor::one_process_publishes(&mut cluster, &devices[3]).await;
    for socket in [
        "plugins/gpu.runmig.dev/dra.sock",
        "plugins_registry/gpu.runmig.dev@reg.sock",
    ] {
        let meta = fs::metadata(cluster.at("kubelet").join(socket)).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.uid()), (0o600, 0), "{socket}");
    }
}

/// Also after a restart of the driver, and it restores the CDI file.
async fn repeats_its_answer(cluster: &mut Cluster, devices: &[String]) {
    let claim = cluster.claim("again", &devices[2], POOL).await;
    let first = cluster.prepared(&claim).await;
    let device = &first.devices[0];
    assert_eq!((first.devices.len(), &device.device_name), (1, &devices[2]));
    let names = (device.pool_name.as_str(), device.request_names.join(" "));
    assert_eq!(names, (POOL, "slice".to_owned()));
    assert_eq!(cluster.starts(), [2]);
    let file = cluster.cdi_file(&claim);
    let text = fs::read(&file).unwrap();
    let written: Value = serde_json::from_slice(&text).unwrap();
    let name = written["devices"][0]["name"].as_str().unwrap();
    let id = format!("{}={name}", written["kind"].as_str().unwrap());
    assert_eq!(device.cdi_device_ids, [id]);

    let (one, other) = tokio::join!(cluster.prepare(&claim), cluster.prepare(&claim));
    assert_eq!((&one, &other), (&first, &first));
    fs::remove_file(&file).unwrap();
    cluster.start_driver();
    assert_eq!(cluster.prepare(&claim).await, first);
    assert_eq!(fs::read(&file).unwrap(), text);
    assert_eq!(cluster.starts(), [2]);

    cluster.unprepare(&claim).await;
    cluster.is_empty();
}

/// A call for several claims has an answer for each, and an error spares the others.
async fn serves_claims_at_once(cluster: &Cluster, devices: &[String]) {
    let mut claims = Vec::new();
    for (at, device) in devices.iter().enumerate() {
        claims.push(cluster.claim(&format!("at-once-{at}"), device, POOL).await);
    }
    let unknown = cluster.claim("unknown", "gpu-0-1g-10gb-0", POOL).await;
    let request = ClaimList {
        claims: [&claims[..], std::slice::from_ref(&unknown)].concat(),
    };
    let answer = cluster.plugin().await.node_prepare_resources(request).await;
    let answers = answer.unwrap().into_inner().claims;
    assert_eq!(answers.len(), 8);
    for claim in &claims {
        assert_eq!(answers[&claim.uid].error, "");
    }
    let error = &answers[&unknown.uid].error;
    let words = "cannot prepare claim default/unknown: cannot parse the device name \"gpu-0-1g-10gb-0\": it does not ";
    begins_with(error, words);
    assert_eq!(cluster.starts(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(cluster.cdi_files().len(), 7);
    let request = ClaimList { claims };
    let mut plugin = cluster.plugin().await;
    let answer = plugin.node_unprepare_resources(request).await;
    let answers = answer.unwrap().into_inner().claims;
    let all_end = answers.values().all(|answer| answer.error.is_empty());
    assert!(answers.len() == 7 && all_end, "{answers:?}");
    cluster.is_empty();
}

async fn refuses_stale_claims(cluster: &Cluster, devices: &[String]) {
    let claim = cluster.claim("stale", &devices[0], POOL).await;
    let replaced = Claim {
        uid: "0b7d5d6c-1111-4222-8333-9c5a0ce4c3a2".to_owned(),
        ..claim.clone()
    };
    let words = "and the pod wants an earlier claim with uid 0b7d5d6c-";
    refused(cluster, &replaced, words).await;
    let hostile = Claim {
        uid: "../../etc/x".to_owned(),
        ..claim.clone()
    };
    let words = "uid \"../../etc/x\" is not a uid of Kubernetes";
    refused(cluster, &hostile, words).await;
    cluster.delete_claim("stale").await;
    refused(cluster, &claim, "the claim does not exist any more").await;
}

async fn refused(cluster: &Cluster, claim: &Claim, words: &str) {
    let Prepared { devices, error } = cluster.prepare(claim).await;
    assert!(devices.is_empty() && error.contains(words), "{error}");
    let begin = format!("cannot prepare claim default/{}: ", claim.name);
    begins_with(&error, &begin);
    has(&error, "; hint: ");
    cluster.is_empty();
}
