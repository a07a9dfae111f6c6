//! Boots with a GPU less, one more, and another model, under a claim.

use crate::cluster::{Cluster, POOL, until};
use crate::looks::on_record;
use testkit::prelude::*;

/// A GPU of this model in each slot.
fn boot(cluster: &mut Cluster, models: &[&str]) {
    cluster.end_driver();
    fs::remove_dir_all(cluster.at("machine")).unwrap();
    let models = models.iter().flat_map(|model| ["--gpu", model]);
    cluster.sim("new", &models.collect::<Vec<&str>>());
    cluster.start_driver();
}

/// The published GPUs, each as the beginning of its devices' names, and the taint of a device that must be there.
async fn published(cluster: &Cluster, device: &str) -> (BTreeSet<String>, Option<String>) {
    let slices = cluster.slices().await;
    let devices = { slices.values() }.flat_map(|spec| spec.devices.iter().flatten());
    let mut gpus = BTreeSet::new();
    let mut found = None;
    for published in devices {
        let (gpu, _) = published.name.split_once("-mig-").unwrap();
        gpus.insert(gpu.to_owned());
        if published.name == device {
            let taints = published.taints.iter().flatten();
            found = Some(taints.map(|taint| taint.key.clone()).next());
        }
    }
    // Before the first layout there is none.
    (gpus, found.unwrap_or_else(|| Some("missing".to_owned())))
}

/// The names follow the slots, and the device of the claim stays published.
/// Failure: the node boots with a GPU less, one more, or another model
#[tokio::test]
async fn names_follow_the_slots() {
    let Some(mut cluster) = Cluster::up().await else {
        return;
    };
    cluster.devices().await;
    boot(&mut cluster, &["A100-80GB", "A100-80GB"]);
    until("both GPUs are published", async || {
        published(&cluster, "").await.0.len() == 2
    })
    .await;
    // Read only now: before, it may have been a device of the first GPU.
    let last = cluster.devices().await.last().unwrap().clone();
    let claim = cluster.claim("boots", &last, POOL).await;
    cluster.prepared(&claim).await;
    let missing = "find device ";
    for (models, gpus, error) in [
        (&["A100-80GB"][..], 2, missing),
        (&["A100-80GB", "A100-80GB", "A100-80GB"], 3, ""),
        (&["A100-80GB", "A30"], 2, missing),
        (&["A100-80GB", "A100-80GB"], 2, ""),
    ] {
        boot(&mut cluster, models);
        let what = format!("the ResourceSlices follow {models:?}");
        until(&what, async || {
            let (found, its) = published(&cluster, &last).await;
            found.len() == gpus && its.as_deref() == Some("runmig.dev/unhealthy")
        })
        .await;
        let told = cluster.prepare(&claim).await.error;
        has(&told, error);
        assert_eq!(told.is_empty(), error.is_empty(), "{models:?}: {told}");
        assert_eq!(on_record(&cluster).len(), 1);
        // A GPU that is back has lost the instance, and Prepare makes it anew.
        if error.is_empty() {
            until("the device works again", async || {
                published(&cluster, &last).await.1.is_none()
            })
            .await;
        }
    }
    cluster.unprepare(&claim).await;
    assert_eq!(on_record(&cluster).len(), 0);
}
