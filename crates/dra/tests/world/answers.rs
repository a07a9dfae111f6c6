//! Every bad answer of the API server.

use crate::cluster::{Cluster, POOL, until};
use crate::looks::{on_record, warns_once};
use crate::proxy::{Fault, Proxy};
use testkit::prelude::{Duration, Instant, begins_with};

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
    let devices = cluster.devices().await;
    let running = cluster.claim("running", &devices[2], POOL).await;
    cluster.prepared(&running).await;
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
    cluster.unprepare(&running).await;
    assert_eq!(cluster.starts(), [0; 0]);
}

async fn recovers(cluster: &Cluster, proxy: &Proxy, fault: Fault, words: &str, device: &str) {
    let before = cluster.slices().await;
    let from = cluster.log(0).len();
    let claim = cluster.claim("meanwhile", device, POOL).await;
    proxy.set(Some(fault));
    cluster.wipe().await;
    let error = cluster.prepare(&claim).await.error;
    let object = "cannot prepare claim default/meanwhile: cannot read claim default/meanwhile: ";
    begins_with(&error, &format!("{object}{words}"));
    // Each of the two watches has tried twice.
    let what = format!("the driver tries again: {fault:?}");
    until(&what, async || proxy.met() >= 5).await;
    assert_eq!(on_record(cluster), ["running".to_owned()].into());
    assert_eq!(cluster.starts(), [2]);
    assert!(cluster.slices().await.is_empty());
    for what in WATCHED {
        let line = format!("cannot watch {what}: {words}");
        cluster.says(from, &line).await;
    }
    warns_once(&cluster.log(from));

    proxy.set(None);
    cluster.prepared(&claim).await;
    cluster.unprepare(&claim).await;
    let what = format!("the ResourceSlices are right again: {fault:?}");
    until(&what, async || cluster.slices().await == before).await;
    cluster.delete_claim("meanwhile").await;
    watches_again(cluster, from).await;
}

async fn watches_again(cluster: &Cluster, from: usize) {
    for what in WATCHED {
        let line = format!("the API server tells {what} again");
        cluster.says(from, &line).await;
    }
}

/// The lists are right, and each watch ends without a word. The driver does not ask all the time.
async fn publishes_although_each_watch_ends(cluster: &Cluster, proxy: &Proxy) {
    let before = cluster.slices().await;
    let from = cluster.log(0).len();
    let start = Instant::now();
    proxy.set(Some(Fault::Body("watch=true", 200, "")));
    until("each watch is tried for the third time", async || {
        proxy.met() >= 6
    })
    .await;
    // Before the third try are pauses of 0.7 s and 1.4 s at least.
    assert!(start.elapsed() > Duration::from_secs(2));
    cluster.wipe().await;
    until("the ResourceSlices are right again", async || {
        cluster.slices().await == before
    })
    .await;
    for what in WATCHED {
        let line = format!("cannot watch {what}: the API server has ended each watch at once");
        cluster.says(from, &line).await;
    }
    warns_once(&cluster.log(from));
    proxy.set(None);
    watches_again(cluster, from).await;
}

/// A 404 of a server without the API does not end a claim.
async fn keeps_claims_at_its_start(cluster: &mut Cluster, proxy: &Proxy) {
    for status in [404, 500] {
        proxy.set(Some(Fault::Status(status)));
        let from = cluster.log(0).len();
        cluster.start_driver();
        let line =
            format!("cannot read claim default/running: the API server has answered {status}");
        cluster.says(from, &line).await;
        assert_eq!((on_record(cluster).len(), cluster.starts()), (1, vec![2]));
    }
    proxy.set(None);
}
