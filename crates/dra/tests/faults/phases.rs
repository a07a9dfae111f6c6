//! The work of the driver that a kill may hit, and the checks after it.

use crate::cluster::{Cluster, POOL, are_all, until};
use runmig_dra::kubelet::messages::{Claim, Prepared};
use runmig_lease::store::Store;
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
        match phase {
            Phase::Prepare => drop(cluster.plugin().await),
            Phase::Promise => {
                let uid = cluster.pod("bound", "hit").await;
                cluster.reserve("hit", &[("bound", &uid)]).await;
                drop(cluster.plugin().await);
            }
            Phase::Unprepare => drop(cluster.prepared(&claim).await),
            Phase::Sweep => {
                cluster.prepared(&claim).await;
                cluster.pod("bound", "hit").await;
                cluster.bind("bound").await;
                cluster.delete_claim("hit").await;
            }
            Phase::Start => {
                let stays = cluster.claim("stays", other, POOL).await;
                let answer = cluster.prepared(&stays).await;
                let file = fs::read(cluster.cdi_file(&stays)).unwrap();
                kept = Some((stays, answer, file));
                cluster.prepared(&claim).await;
                cluster.end_driver();
                cluster.delete_claim("hit").await;
                cluster.wipe().await;
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
                cluster.bind("bound").await;
                until("the claim is promised", async || {
                    is_dead() || cluster.leases().len() == 1
                })
                .await;
            }
            Phase::Prepare => drop(cluster.try_prepare(&self.claim).await),
            Phase::Unprepare => drop(cluster.try_unprepare(&self.claim).await),
            Phase::Sweep => {
                cluster.delete_pod("bound").await;
                until("the claim is swept", async || {
                    is_dead() || is_empty(cluster)
                })
                .await;
            }
            Phase::Start => {
                until("the driver is at work", async || {
                    is_dead() || cluster.leases().len() == 1 && has_slices(cluster).await
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
            assert!(cluster.leases().iter().any(|held| of(held, stays)));
            assert!(cluster.starts().contains(&start(self.other)));
        }
        cluster.start_driver();
        match self.phase {
            Phase::Promise => {
                until("the claim is promised", async || {
                    cluster.leases().len() == 1
                })
                .await;
                self.prepared(cluster).await;
            }
            Phase::Prepare if retries => self.prepared(cluster).await,
            Phase::Prepare | Phase::Unprepare => {}
            Phase::Sweep => {
                until("the claim is swept", async || is_empty(cluster)).await;
            }
            Phase::Start => {
                let (stays, answer, file) = self.kept.as_ref().unwrap();
                assert_eq!(&cluster.prepare(stays).await, answer);
                assert_eq!(&fs::read(cluster.cdi_file(stays)).unwrap(), file);
                until("the driver is at work", async || {
                    cluster.leases().len() == 1 && has_slices(cluster).await
                })
                .await;
                assert_eq!(cluster.starts(), [start(self.other)]);
            }
        }
        let claims = self.kept.iter().map(|(stays, ..)| stays);
        for claim in claims.chain([&self.claim]) {
            cluster.unprepare(claim).await;
            cluster.delete_claim(&claim.name).await;
        }
        cluster.delete_pod("bound").await;
        cluster.is_empty();
        let store = Store::open(&cluster.at("state"), Duration::from_secs(10)).unwrap();
        until("no record is left", async || {
            store.list().unwrap().entries.is_empty()
        })
        .await;
    }

    async fn prepared(&self, cluster: &Cluster) {
        let answer = cluster.prepared(&self.claim).await;
        assert_eq!(answer.devices[0].device_name, self.device);
        assert_eq!(cluster.starts(), [start(self.device)]);
        assert_eq!(cluster.leases().len(), 1);
        let file = fs::read(cluster.cdi_file(&self.claim)).unwrap();
        let written: Value = serde_json::from_slice(&file).unwrap();
        let name = written["devices"][0]["name"].as_str().unwrap();
        let id = format!("gpu.runmig.dev/slice={name}");
        assert_eq!(answer.devices[0].cdi_device_ids, [id]);
    }
}

fn of(held: &runmig_lease::store::Held, claim: &Claim) -> bool {
    held.lease.claim().is_some_and(|c| c.uid == claim.uid)
}

/// The first memory slice of a device, which its name tells: `…-START-SIZE`.
fn start(device: &str) -> u64 {
    device.rsplit('-').nth(1).unwrap().parse().unwrap()
}

fn is_empty(cluster: &Cluster) -> bool {
    cluster.leases().is_empty() && cluster.cdi_files().is_empty()
}

async fn has_slices(cluster: &Cluster) -> bool {
    are_all(&cluster.published().await)
}
