//! Prepares and unprepares claims: reads the claim, takes the lease, writes the CDI file.
//!
//! Claims are independent of each other. The steps of one claim follow each other, whoever asks for them.

use crate::cdi::{self, Folder};
use crate::claim::{Allocated, ClaimName, allocated, check_uid, withdrawn};
use crate::ledger::blocking;
use crate::report::Reports;
use crate::{api, files, ledger};
use kube::Client;
use runmig_lease::Patience;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::store::Claim;
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
    pub(crate) node: Arc<Node>,
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
    pub(crate) async fn prepare(&self, claim: &ClaimName) -> Result<Vec<Claim>> {
        let (node, asked) = (self.node.clone(), claim.clone());
        let work = async move {
            let found = api::claim(&node.client, &asked.namespace, &asked.name).await?;
            let allocated = allocated(found, &asked, &node.pool)?;
            let maker = node.clone();
            let devices = blocking(move || make(&maker, allocated)).await?;
            tracing::info!("claim {asked} is prepared");
            node.reports.made(asked);
            Ok(devices)
        };
        let answer = self.in_turn(&claim.uid, work).await;
        answer.context(|| format!("prepare claim {claim}"))
    }

    /// Puts the places of a claim's devices on record, without hardware, if it is reserved for this pod. Returns false
    /// if it is not. The kubelet prepares a claim once, so this puts its later pods on record too.
    pub(crate) async fn promise(&self, claim: &ClaimName, pod: &str) -> Result<bool> {
        check_uid(&claim.uid)?;
        let _turn = self.serial.turn(&claim.uid).await;
        let node = self.node.clone();
        // Read in the turn: the claim may have ended since its pod was seen.
        let found = api::claim(&node.client, &claim.namespace, &claim.name).await?;
        // A claim for others, or for a later pod, is not a failure here.
        let Ok(Allocated { devices, .. }) = allocated(found, claim, &node.pool) else {
            return Ok(false);
        };
        if !devices.iter().flat_map(|d| &d.pods).any(|p| p.uid == pod) {
            return Ok(false);
        }
        let promise = move || {
            let hear = |claim: &Claim, what| node.reports.news(claim, what);
            ledger::promise(&node.config, &devices, &hear)
        };
        blocking(promise).await?;
        Ok(true)
    }

    /// Ends the lease of a device that the claim has lost, unless a container or a process uses its slice. An API server
    /// that does not answer keeps it.
    pub(crate) async fn sweep(&self, held: &Claim) -> Result<()> {
        let (node, held) = (self.node.clone(), held.clone());
        // The first look needs no turn. Most claims are in order.
        if withdrawal(&node, &held).await?.is_none() {
            return Ok(());
        }
        let (uid, name) = (held.uid.clone(), held.full_name());
        let work = async move {
            // Read in the turn: a pod may have got the claim since the first look.
            match withdrawal(&node, &held).await? {
                Some(why) => blocking(move || end_withdrawn(&node, &held, &why)).await,
                None => Ok(()),
            }
        };
        let answer = self.in_turn(&uid, work).await;
        answer.context(|| format!("unprepare claim {name}"))
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
    pub(crate) async fn remove_left_file(&self, uid: String) -> Result<()> {
        let (node, its) = (self.node.clone(), uid.clone());
        let work = blocking(move || {
            // A Prepare may have come before this turn.
            if ledger::claims(&node.config)?.iter().all(|c| c.uid != its) {
                node.cdi.remove(&its)?;
                tracing::info!("the CDI file of claim {its} is removed: the claim has no lease");
            }
            Ok(())
        });
        self.in_turn(&uid, work).await
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
        let answer = self.in_turn(&claim.uid, work).await;
        answer.context(|| format!("unprepare claim {claim}"))
    }

    /// Does the work of a claim after all earlier work of it. Without an answer in time the work continues.
    async fn in_turn<T: Send + 'static>(
        &self,
        uid: &str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        check_uid(uid)?;
        let turn = self.serial.turn(uid);
        let (node, uid) = (self.node.clone(), uid.to_owned());
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

fn make(node: &Node, allocated: Allocated) -> Result<Vec<Claim>> {
    let Allocated { title, devices } = allocated;
    let files = files::edits(&node.config)?;
    let hear = |claim: &Claim, what| node.reports.news(claim, what);
    let slices = ledger::prepare(&node.config, &devices, &hear)?;
    let specification = cdi::specification(&title, &slices, &files, &node.hook);
    node.cdi.write(&devices[0].uid, &specification)?;
    Ok(devices)
}

/// Returns why a claim on record has no right to its device any more, as the API has it now.
async fn withdrawal(node: &Node, held: &Claim) -> Result<Option<String>> {
    let found = api::claim(&node.client, &held.namespace, &held.name).await?;
    Ok(withdrawn(found, held))
}

/// Ends the lease of a device that a claim has lost, unless the slice is in use.
fn end_withdrawn(node: &Node, held: &Claim, why: &str) -> Result<()> {
    ledger::on_record(&node.config, |leases| {
        let device = ledger::device_of(held);
        if let Some(by) = leases.user_of_device(&device)? {
            tracing::info!("{held} keeps its slice, although {why}: {by}");
            return Ok(());
        }
        let on_record = leases.claims()?;
        let mut claims = on_record.iter().filter_map(|other| other.lease.claim());
        // First: after the lease no record names the file to the next sweep.
        if !claims.any(|c| c.uid == held.uid && c.device != held.device) {
            node.cdi.remove(&held.uid)?;
        }
        leases.release_device(&device, Patience::default())?;
        tracing::info!("{held} is released: {why}");
        Ok(())
    })
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
