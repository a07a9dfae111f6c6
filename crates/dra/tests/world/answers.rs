//! Every bad answer of the API server.

use crate::POOL;
use crate::calls::{
    delete_claim, devices, log, on_record, prepare, says, slices, unprepare, warns_once, wipe,
};
use crate::cluster::{Cluster, until};
use crate::proxy::{Fault, Proxy};
use std::time::{Duration, Instant};

/// The watched objects, as the log has them.
const WATCHED: [&str; 2] = ["the pods of this node", "the ResourceSlices of this node"];

/// Under each the prepared claim stays, Prepare names the answer, and the ResourceSlices are right again afterwards.
/// Failure: the API server answers 401, 403, 404, 409, 410, 422, 500, half, or closes connections
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survives_bad_answers() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    let proxy = Proxy::start(&mut cluster.plane).await;
    cluster.start_driver();
    let devices = devices(&cluster).await;
    let running = cluster.claim("running", &devices[2], POOL).await;
    assert_eq!(prepare(&cluster, &running).await, "");
    for status in [401, 403, 404, 409, 410, 422, 429, 500] {
        let words = format!("the API server has answered {status}: ");
        recovers(&cluster, &proxy, Fault::Status(status), &words, &devices[4]).await;
    }
    for (fault, words) in [
        (Fault::Half, "the API server does not answer: "),
        (Fault::Away, "the API server does not answer: "),
        (Fault::Silent, "the API server has not answered for "),
    ] {
        recovers(&cluster, &proxy, fault, words, &devices[4]).await;
    }
    publishes_although_each_watch_ends(&cluster, &proxy).await;
    keeps_claims_at_its_start(&mut cluster, &proxy).await;
    unprepare(&cluster, &running).await;
    assert_eq!(cluster.starts(), [0; 0]);
}

async fn recovers(cluster: &Cluster, proxy: &Proxy, fault: Fault, words: &str, device: &str) {
    let before = slices(cluster).await;
    let from = log(cluster, 0).len();
    let claim = cluster.claim("meanwhile", device, POOL).await;
    proxy.set(Some(fault));
    wipe(cluster).await;
    let error = prepare(cluster, &claim).await;
    let object = "cannot prepare claim default/meanwhile: read claim default/meanwhile: ";
    assert!(
        error.starts_with(&format!("{object}{words}")),
        "{fault:?}: {error}"
    );
    // Each of the two watches has tried twice.
    until(&format!("the driver tries again: {fault:?}"), async || {
        proxy.met() >= 5
    })
    .await;
    assert_eq!(
        (on_record(cluster), cluster.starts()),
        (["running".to_owned()].into(), vec![2])
    );
    assert!(slices(cluster).await.is_empty());
    for what in WATCHED {
        let line = format!("cannot watch {what}: {words}");
        says(cluster, from, &line).await;
    }
    warns_once(&log(cluster, from));

    proxy.set(None);
    assert_eq!(prepare(cluster, &claim).await, "", "{fault:?}");
    unprepare(cluster, &claim).await;
    until(
        &format!("the ResourceSlices are right again: {fault:?}"),
        async || slices(cluster).await == before,
    )
    .await;
    delete_claim(cluster, "meanwhile").await;
    watches_again(cluster, from).await;
}

async fn watches_again(cluster: &Cluster, from: usize) {
    for what in WATCHED {
        let line = format!("the API server tells {what} again");
        says(cluster, from, &line).await;
    }
}

/// The lists are right, and each watch ends without a word. The driver does not ask all the time.
async fn publishes_although_each_watch_ends(cluster: &Cluster, proxy: &Proxy) {
    let before = slices(cluster).await;
    let from = log(cluster, 0).len();
    let start = Instant::now();
    proxy.set(Some(Fault::Body("watch=true", 200, "")));
    until("each watch is tried for the third time", async || {
        proxy.met() >= 6
    })
    .await;
    // Before the third try are pauses of 0.7 s and 1.4 s at least.
    assert!(start.elapsed() > Duration::from_secs(2));
    wipe(cluster).await;
    until("the ResourceSlices are right again", async || {
        slices(cluster).await == before
    })
    .await;
    for what in WATCHED {
        let line = format!("cannot watch {what}: the API server has ended each watch at once");
        says(cluster, from, &line).await;
    }
    warns_once(&log(cluster, from));
    proxy.set(None);
    watches_again(cluster, from).await;
}

/// A 404 of a server without the API does not end a claim.
async fn keeps_claims_at_its_start(cluster: &mut Cluster, proxy: &Proxy) {
    for status in [404, 500] {
        proxy.set(Some(Fault::Status(status)));
        let from = log(cluster, 0).len();
        cluster.start_driver();
        let line =
            format!("cannot read claim default/running: the API server has answered {status}");
        says(cluster, from, &line).await;
        assert_eq!((on_record(cluster).len(), cluster.starts()), (1, vec![2]));
    }
    proxy.set(None);
}
