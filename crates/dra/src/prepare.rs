//! Prepares and unprepares claims: reads the claim, takes the lease, writes the CDI file.
//!
//! Claims are independent of each other. The steps of one claim follow each other, whoever asks for them.

use crate::cdi::{self, Folder};
use crate::claim::{Allocated, Allocation, ClaimName, allocated, withdrawn};
use crate::report::{News, Reports};
use crate::{api, files, ledger};
use kube::Client;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::store::Claim;
use runmig_lease::{ClaimNews, process};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as Turns, OwnedMutexGuard, watch};

/// The time for an answer. The kubelet gives up after 45 seconds.
const ANSWER: Duration = Duration::from_secs(42);
/// The time for an answer once the process has to end, which is within 5 seconds.
const LAST_ANSWER: Duration = Duration::from_secs(4);

/// The claims of this node.
pub(crate) struct Claims {
    node: Arc<Node>,
    serial: Serial,
    /// Says that the process has to end.
    ending: watch::Receiver<bool>,
}

/// The parts that a claim is made with.
pub(crate) struct Node {
    /// The API server.
    pub(crate) client: Client,
    /// The configuration of runmig.
    pub(crate) config: Arc<Config>,
    /// The pool of this node.
    pub(crate) pool: String,
    /// The folder of CDI files.
    pub(crate) cdi: Folder,
    /// The hook of the containers.
    pub(crate) hook: PathBuf,
    /// The reports about claims to the API.
    pub(crate) reports: Reports,
}

impl Node {
    /// Reports news of the ledger.
    fn hear(&self, claim: &Claim, what: ClaimNews) {
        let claim = claim.clone();
        self.reports.news(News { claim, what });
    }
}

impl Claims {
    /// Takes no look at the claims that exist.
    pub(crate) fn new(node: Node, ending: watch::Receiver<bool>) -> Claims {
        Claims {
            node: Arc::new(node),
            serial: Serial::default(),
            ending,
        }
    }

    /// Makes the slices of a claim and its CDI file. Returns the devices. A repeated call gives the same answer.
    pub(crate) async fn prepare(&self, claim: &ClaimName) -> Result<Vec<Allocation>> {
        let (node, asked) = (self.node.clone(), claim.clone());
        let work = async move {
            let found = api::claim(&node.client, &asked.namespace, &asked.name).await?;
            let allocated = allocated(found.as_ref(), &asked, &node.pool)?;
            let (maker, claim) = (node.clone(), asked.clone());
            let devices = blocking(move || make(&maker, &claim, allocated)).await?;
            tracing::info!("claim {asked} is prepared");
            node.reports.made(asked);
            Ok(devices)
        };
        let answer = self.in_turn(claim, work).await;
        answer.context(|| format!("prepare claim {claim}"))
    }

    /// Puts the places of a claim's devices on record, without hardware, if it is reserved for this pod. Returns false
    /// if it is not. The kubelet prepares a claim once, so this puts its later pods on record too.
    pub(crate) async fn promise(&self, claim: &ClaimName, pod: &str) -> Result<bool> {
        claim.check()?;
        let _turn = self.serial.turn(&claim.uid).await;
        // Read in the turn: the claim may have ended since its pod was seen.
        let found = api::claim(&self.node.client, &claim.namespace, &claim.name).await?;
        let allocated = match allocated(found.as_ref(), claim, &self.node.pool) {
            Ok(allocated) if allocated.pods.iter().any(|p| p.uid == pod) => allocated,
            // A claim for others, or of a later pod, is no failure here.
            _ => return Ok(false),
        };
        let (node, asked) = (self.node.clone(), claim.clone());
        let promise = move || {
            let hear = |claim: &Claim, what| node.hear(claim, what);
            ledger::promise(&node.config, &asked, &allocated, &hear)
        };
        blocking(promise).await?;
        Ok(true)
    }

    /// Ends the lease of a device that the claim has lost, unless a container or a process uses its slice.
    pub(crate) async fn sweep(&self, held: Claim) -> Result<()> {
        let claim = ClaimName::from(&held);
        let (node, asked) = (self.node.clone(), claim.clone());
        let work = async move {
            // Read in the turn: a pod may have got the claim since the first look.
            let found = api::claim(&node.client, &asked.namespace, &asked.name).await?;
            let Some(why) = withdrawn(found.as_ref(), &held) else {
                return Ok(());
            };
            blocking(move || {
                if let Some(by) = ledger::user_of(&node.config, &held)? {
                    tracing::info!("{held} keeps its slice, although {why}: {by}");
                    return Ok(());
                }
                // First: after the lease no record names the file to the next sweep.
                if ledger::is_last_device(&node.config, &held)? {
                    node.cdi.remove(&held.uid)?;
                }
                ledger::release_device(&node.config, &held)?;
                tracing::info!("{held} is released: {why}");
                Ok(())
            })
            .await
        };
        let answer = self.in_turn(&claim, work).await;
        answer.context(|| format!("unprepare claim {claim}"))
    }

    /// Returns the uids of claims that have a CDI file and no lease.
    pub(crate) async fn left_files(&self) -> Result<BTreeSet<String>> {
        let node = self.node.clone();
        blocking(move || {
            // The files first: a Prepare puts its lease on record before it writes one.
            let mut left = node.cdi.claims()?;
            if !left.is_empty() {
                for claim in ledger::claims(&node.config)? {
                    left.remove(&claim.uid);
                }
            }
            Ok(left)
        })
        .await
    }

    /// Removes the CDI file of a claim without a lease.
    pub(crate) async fn remove_left_file(&self, claim: &ClaimName) -> Result<()> {
        let (node, uid) = (self.node.clone(), claim.uid.clone());
        let work = blocking(move || {
            // A Prepare may have come before this turn.
            if ledger::claims(&node.config)?.iter().all(|c| c.uid != uid) {
                node.cdi.remove(&uid)?;
                tracing::info!("the CDI file of claim {uid} is removed: the claim has no lease");
            }
            Ok(())
        });
        self.in_turn(claim, work).await
    }

    /// Returns the claims on record.
    pub(crate) async fn on_record(&self) -> Result<Vec<Claim>> {
        let node = self.node.clone();
        blocking(move || ledger::claims(&node.config)).await
    }

    /// Returns the client of the API server.
    pub(crate) fn client(&self) -> &Client {
        &self.node.client
    }

    /// Returns the configuration of runmig.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.node.config
    }

    /// Ends the lease of a claim, and removes its CDI file. An unknown claim has ended already.
    pub(crate) async fn unprepare(&self, claim: &ClaimName) -> Result<()> {
        let (node, ended) = (self.node.clone(), claim.clone());
        let work = blocking(move || {
            ledger::unprepare(&node.config, &ended.uid)?;
            // Until here a container of the claim could start.
            node.cdi.remove(&ended.uid)?;
            tracing::info!("claim {ended} is unprepared");
            Ok(())
        });
        let answer = self.in_turn(claim, work).await;
        answer.context(|| format!("unprepare claim {claim}"))
    }

    /// Does the work of a claim after all earlier work of it. Without an answer in time the work continues.
    async fn in_turn<T: Send + 'static>(
        &self,
        claim: &ClaimName,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        claim.check()?;
        let turn = self.serial.turn(&claim.uid);
        let (node, uid) = (self.node.clone(), claim.uid.clone());
        let working = tokio::spawn(async move {
            let _turn = turn.await;
            // Another process of the driver may serve the claim too.
            let _alone = blocking(move || ledger::turn(&node.config, &uid)).await?;
            work.await
        });
        let unfinished =
            |why: String| Err(Error::new(why).hint("wait, since the kubelet asks again"));
        tokio::select! {
            done = working => done.because(|| "the driver failed at the claim")?,
            () = tokio::time::sleep(ANSWER) => unfinished(format!(
                "the work on the claim is not done after {} seconds and continues",
                ANSWER.as_secs()
            )),
            () = self.last_answer() => unfinished(
                "this process of runmig-dra ends, and the next one continues the work".to_owned(),
            ),
        }
    }

    /// Returns when the process has to end and no answer may wait any longer.
    async fn last_answer(&self) {
        let mut ending = self.ending.clone();
        if ending.wait_for(|is_ending| *is_ending).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(LAST_ANSWER).await;
    }
}

/// Does work that blocks in a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let work = || {
        process::renew_patience();
        work()
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.because(|| "the driver failed at the claim")?
}

fn make(node: &Node, claim: &ClaimName, allocated: Allocated) -> Result<Vec<Allocation>> {
    let files = files::edits(&node.config)?;
    let hear = |claim: &Claim, what| node.hear(claim, what);
    let slices = ledger::prepare(&node.config, claim, &allocated, &hear)?;
    node.cdi.write(
        &claim.uid,
        &cdi::specification(&claim.uid, &allocated.title, &slices, &files, &node.hook),
    )?;
    Ok(allocated.devices)
}

/// The claims with work, by uid.
#[derive(Default)]
struct Serial {
    claims: Mutex<HashMap<String, Arc<Turns<()>>>>,
}

impl Serial {
    /// Returns a claim's next turn, which lasts until its drop. Turns come in the order of these calls' first polls.
    fn turn(&self, uid: &str) -> impl Future<Output = OwnedMutexGuard<()>> + use<> {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        // Only the map has the turns of claims without work.
        claims.retain(|_, turns| Arc::strong_count(turns) > 1);
        let turns = claims.entry(uid.to_owned()).or_default().clone();
        turns.lock_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn gives_turns_claim_by_claim() {
        let serial = Serial::default();
        let first = serial.turn("a").await;
        let mut second = Box::pin(serial.turn("a"));
        assert!((&mut second).now_or_never().is_none());
        drop(serial.turn("c").now_or_never().unwrap());
        let other = serial.turn("b").now_or_never();
        assert!(other.is_some());
        drop((first, other));
        drop(second.await);
        drop(serial.turn("c").await);
        assert_eq!(serial.claims.lock().unwrap().len(), 1);
    }
}
