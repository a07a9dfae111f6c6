//! A state directory that is full or read-only, and a damaged ledger.

use crate::cluster::{Cluster, POOL};
use crate::looks::on_record;
use testkit::prelude::*;

/// The claim's Prepare says so, and succeeds after the repair.
/// Failure: the state directory is full, or the ledger is damaged under a claim
#[tokio::test]
async fn names_problems_of_ledger() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    cluster.end_driver();
    let _ = fs::remove_dir_all(cluster.at("state"));
    let state = Mounted::tmpfs(&cluster.at("state"), "size=1m,mode=0700");
    cluster.start_driver();
    let devices = cluster.devices().await;
    let claim = cluster.claim("disk", &devices[1], POOL).await;
    let filler = state.fill(0);
    for _ in 0..2 {
        let error = cluster.prepare(&claim).await.error;
        begins_with(&error, "cannot prepare claim default/disk: ");
        assert!(error.contains("No space left on device"), "{error}");
        assert_eq!(cluster.starts(), [0; 0]);
    }
    fs::remove_file(&filler).unwrap();
    cluster.prepared(&claim).await;
    assert_eq!(cluster.starts(), [1]);

    // A writer without room takes that of the generation before.
    fs::remove_file(cluster.at("state/ledger.json.1")).unwrap();
    let filler = state.fill(0);
    let error = cluster.try_unprepare(&claim).await.unwrap();
    let words =
        "cannot unprepare claim default/disk: cannot record the lease of claim default/disk ";
    begins_with(&error, words);
    has(&error, "No space left on device");
    assert_eq!((cluster.starts(), on_record(&cluster).len()), (vec![1], 1));
    fs::remove_file(&filler).unwrap();
    cluster.unprepare(&claim).await;
    assert_eq!((cluster.starts(), on_record(&cluster).len()), (vec![], 0));

    names_damaged_ledger(&cluster, &devices[1]).await;
    drop(state);
    names_read_only_directory(&mut cluster).await;
}

async fn names_damaged_ledger(cluster: &Cluster, device: &str) {
    let claim = cluster.claim("damaged", device, POOL).await;
    cluster.prepared(&claim).await;
    let ledger = cluster.at("state/ledger.json");
    let text = fs::read(&ledger).unwrap();
    fs::write(&ledger, "{").unwrap();
    let error = cluster.prepare(&claim).await.error;
    begins_with(&error, "cannot prepare claim default/damaged: ");
    has(&error, "is damaged: it is cut off");
    has(&error, "migctl gc --repair");
    assert_eq!(cluster.starts(), [1]);
    fs::write(&ledger, text).unwrap();
    cluster.prepared(&claim).await;
    cluster.unprepare(&claim).await;
    assert_eq!(cluster.starts(), [0; 0]);
}

/// The driver ends, and its pod's log has the cause.
/// Failure: the state directory is read-only
async fn names_read_only_directory(cluster: &mut Cluster) {
    cluster.end_driver();
    let _state = Mounted::tmpfs(&cluster.at("state"), "ro,mode=0700");
    cluster.start_driver();
    cluster.says(0, "Read-only file system").await;
}
