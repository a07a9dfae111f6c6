//! The work of the driver that a kill may hit, and the checks after it.

use crate::calls::*;
use crate::cluster::{Cluster, until};
use kube::api::DeleteParams;
use runmig_dra::kubelet::messages::{Claim, Prepared};
use testkit::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The pod of a claim is bound.
    Promise,
    Prepare,
    Unprepare,
    /// Kubernetes forgot a claim, and a pod goes.
    Sweep,
    /// The driver starts beside a claim that is ready and one that was deleted, and without a ResourceSlice.
    Start,
}

pub const PHASES: [Phase; 5] = [
    Phase::Promise,
    Phase::Prepare,
    Phase::Unprepare,
    Phase::Sweep,
    Phase::Start,
];

/// The claims of one run.
pub struct Run<'a> {
    phase: Phase,
    device: &'a str,
    other: &'a str,
    claim: Claim,
    /// A claim of `Start` that stays.
    kept: Option<(Claim, Prepared, Vec<u8>)>,
}

impl<'a> Run<'a> {
    /// Makes everything that the work begins with. The driver runs afterwards, except for `Start`.
    pub async fn begin(
        cluster: &mut Cluster,
        phase: Phase,
        [device, other]: [&'a str; 2],
    ) -> Run<'a> {
        if cluster.driver.is_none() {
            cluster.start_driver();
        }
        let claim = cluster.claim("hit", device, POOL).await;
        let mut kept = None;
        let ready = async |cluster: &Cluster, claim: &Claim| {
            let answer = prepare(cluster, claim).await;
            assert_eq!(answer.error, "");
            answer
        };
        match phase {
            Phase::Prepare => drop(cluster.plugin().await),
            Phase::Promise => {
                let uid = pod(cluster, "bound", "hit").await;
                let pod = json!({"resource": "pods", "name": "bound", "uid": uid});
                cluster
                    .set_status("hit", json!({"reservedFor": [pod]}))
                    .await;
                drop(cluster.plugin().await);
            }
            Phase::Unprepare => drop(ready(cluster, &claim).await),
            Phase::Sweep => {
                ready(cluster, &claim).await;
                pod(cluster, "bound", "hit").await;
                bind(cluster, "bound").await;
                delete_claim(cluster, "hit").await;
            }
            Phase::Start => {
                let stays = cluster.claim("stays", other, POOL).await;
                let answer = ready(cluster, &stays).await;
                let file = fs::read(file_of(cluster, &stays)).unwrap();
                kept = Some((stays, answer, file));
                ready(cluster, &claim).await;
                cluster.end_driver();
                delete_claim(cluster, "hit").await;
                let slices = slices_api(&cluster.client);
                let all = (DeleteParams::default(), Default::default());
                slices.delete_collection(&all.0, &all.1).await.unwrap();
            }
        }
        Run {
            phase,
            device,
            other,
            claim,
            kept,
        }
    }

    /// Has the driver do its work, until that is done or `is_dead`.
    pub async fn act(&self, cluster: &Cluster, mut is_dead: impl FnMut() -> bool) {
        match self.phase {
            Phase::Promise => {
                bind(cluster, "bound").await;
                until("the claim is promised", async || {
                    is_dead() || leases(cluster).len() == 1
                })
                .await;
            }
            Phase::Prepare => drop(try_prepare(cluster, &self.claim).await),
            Phase::Unprepare => drop(try_unprepare(cluster, &self.claim).await),
            Phase::Sweep => {
                delete_pod(cluster, "bound").await;
                until("the claim is swept", async || {
                    is_dead() || is_empty(cluster)
                })
                .await;
            }
            Phase::Start => {
                until("the driver is at work", async || {
                    is_dead() || leases(cluster).len() == 1 && has_slices(cluster).await
                })
                .await;
            }
        }
    }

    /// After a kill: the next process puts everything right. `retries`: the kubelet asks for the claim again, and does
    /// not end it at once.
    pub async fn judge(self, cluster: &mut Cluster, retries: bool) {
        // A claim keeps its place whatever happened, and no two have one slice.
        if let Some((stays, ..)) = &self.kept {
            assert!(leases(cluster).iter().any(|held| of(held, stays)));
            assert!(cluster.starts().contains(&start(self.other)));
        }
        cluster.start_driver();
        match self.phase {
            Phase::Promise => {
                until("the claim is promised", async || leases(cluster).len() == 1).await;
                self.prepared(cluster).await;
            }
            Phase::Prepare if retries => self.prepared(cluster).await,
            Phase::Prepare | Phase::Unprepare => {}
            Phase::Sweep => {
                until("the claim is swept", async || is_empty(cluster)).await;
            }
            Phase::Start => {
                let (stays, answer, file) = self.kept.as_ref().unwrap();
                assert_eq!(&prepare(cluster, stays).await, answer);
                assert_eq!(&fs::read(file_of(cluster, stays)).unwrap(), file);
                until("the driver is at work", async || {
                    leases(cluster).len() == 1 && has_slices(cluster).await
                })
                .await;
                assert_eq!(cluster.starts(), [start(self.other)]);
            }
        }
        let claims = self.kept.iter().map(|(stays, ..)| stays);
        for claim in claims.chain([&self.claim]) {
            for _ in 0..2 {
                assert_eq!(try_unprepare(cluster, claim).await.as_deref(), Some(""));
            }
            delete_claim(cluster, &claim.name).await;
        }
        delete_pod(cluster, "bound").await;
        assert_eq!(cluster.starts(), [0; 0]);
        assert_eq!(cluster.cdi_files(), [""; 0]);
        until("no record is left", async || records(cluster).is_empty()).await;
    }

    async fn prepared(&self, cluster: &Cluster) {
        let answer = prepare(cluster, &self.claim).await;
        assert_eq!(answer.error, "");
        assert_eq!(answer.devices[0].device_name, self.device);
        assert_eq!(cluster.starts(), [start(self.device)]);
        assert_eq!(leases(cluster).len(), 1);
        let file = fs::read(file_of(cluster, &self.claim)).unwrap();
        let written: serde_json::Value = serde_json::from_slice(&file).unwrap();
        let name = written["devices"][0]["name"].as_str().unwrap();
        let id = format!("gpu.runmig.dev/slice={name}");
        assert_eq!(answer.devices[0].cdi_device_ids, [id]);
    }
}

fn of(held: &runmig_lease::store::Held, claim: &Claim) -> bool {
    held.lease.claim().is_some_and(|c| c.uid == claim.uid)
}

fn file_of(cluster: &Cluster, claim: &Claim) -> std::path::PathBuf {
    let name = format!("gpu.runmig.dev-{}.json", claim.uid);
    cluster.at("cdi").join(name)
}

/// The first memory slice of a device, which its name tells: `…-START-SIZE`.
fn start(device: &str) -> u64 {
    device.rsplit('-').nth(1).unwrap().parse().unwrap()
}

fn is_empty(cluster: &Cluster) -> bool {
    leases(cluster).is_empty() && cluster.cdi_files().is_empty()
}

async fn has_slices(cluster: &Cluster) -> bool {
    let slices = slices_api(&cluster.client).list(&Default::default()).await;
    let slices = slices.unwrap().items;
    let of_pool = slices
        .first()
        .map(|slice| slice.spec.pool.resource_slice_count);
    of_pool.is_some_and(|count| count == slices.len() as i64)
}
