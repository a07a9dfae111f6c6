//! Reports about claims to the API, for people: `status.devices`, and events on pods. The work on claims never waits for
//! them. A status that cannot be written is tried again, and an event is told anew when it happens again.
//!
//! ```text
//! events      pure: events on the pods of a claim
//! status      pure: the devices in the status of a claim
//! ```

mod events;
mod status;

use crate::api::{self, Client, Written};
use crate::claim::ClaimName;
use crate::health::DeviceHealth;
use crate::ledger;
use crate::obstacle::Obstacles;
use events::MAX_PODS;
pub(crate) use events::News;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use runmig_lease::ClaimNews;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::store::Claim;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The most claims that wait for their report: more than a node has slices.
const MAX_WAITING: usize = 1024;
/// The most events that wait.
const MAX_NEWS: usize = 64;

/// The way to report.
#[derive(Clone)]
pub(crate) struct Reports {
    made: mpsc::Sender<ClaimName>,
    news: mpsc::Sender<News>,
}

/// Returns the way to report, and its ends: claims whose slices are made, and news.
pub(crate) fn reports() -> (Reports, mpsc::Receiver<ClaimName>, mpsc::Receiver<News>) {
    let (made, all_made) = mpsc::channel(MAX_WAITING);
    let (news, all_news) = mpsc::channel(MAX_NEWS);
    (Reports { made, news }, all_made, all_news)
}

impl Reports {
    /// Reports the slices of a claim in its status.
    pub(crate) fn made(&self, claim: ClaimName) {
        // With too many at once the restart of the driver reports the others.
        if let Err(e) = self.made.try_send(claim) {
            tracing::warn!("the status of a claim is not written: {e}");
        }
    }

    /// Reports news on the pods of a claim.
    pub(crate) fn news(&self, claim: &Claim, what: ClaimNews) {
        let claim = claim.clone();
        // With too many at once the ledger's log alone has the others.
        let _ = self.news.try_send(News { claim, what });
    }
}

/// The healths of the last look. None before the first.
pub(crate) type Healths = watch::Receiver<Option<Vec<DeviceHealth>>>;

/// Creates an event with a warning about a node.
pub(crate) async fn warn_of_node(client: &Client, node: &str, note: &str) -> Result<()> {
    let event = events::node_event(node, note, MicroTime(Timestamp::now()));
    api::create_event(client, &event).await
}

/// Creates events, without an end. One that fails is told again when it happens again.
pub(crate) async fn report_news(client: &Client, node: &str, mut inbox: mpsc::Receiver<News>) {
    let mut is_failing = false;
    while let Some(news) = inbox.recv().await {
        for pod in news.claim.pods.iter().take(MAX_PODS) {
            let event = news.event(pod, node, MicroTime(Timestamp::now()));
            let created = api::create_event(client, &event).await;
            let has_failed = mem::replace(&mut is_failing, created.is_err());
            if let Err(e) = created
                && !has_failed
            {
                tracing::warn!("{}", e.line());
            }
        }
    }
}

/// Writes the status of claims when their slices are made, and when the health of one changes, without an end. The first
/// look tells all that are on record, which an earlier process may not have reported.
pub(crate) async fn report_slices(
    client: &Client,
    config: &Arc<Config>,
    node: &str,
    mut inbox: mpsc::Receiver<ClaimName>,
    mut healths: Healths,
) {
    let mut reporter = Reporter {
        client,
        config,
        node,
        waiting: VecDeque::new(),
        healths: Vec::new(),
        obstacles: Obstacles::default(),
        is_dropped: false,
    };
    let mut next = Instant::now();
    loop {
        tokio::select! {
            made = inbox.recv() => match made {
                Some(claim) => reporter.add(claim),
                None => return,
            },
            Ok(()) = healths.changed() => {
                let now = healths.borrow_and_update().clone();
                reporter.hear(now.unwrap_or_default());
            }
            () = tokio::time::sleep_until(next), if !reporter.waiting.is_empty() => {
                if !reporter.try_first().await {
                    next = Instant::now() + reporter.obstacles.pause();
                }
            }
        }
    }
}

struct Reporter<'a> {
    client: &'a Client,
    config: &'a Arc<Config>,
    node: &'a str,
    /// The claims whose status is not written yet, each once.
    waiting: VecDeque<ClaimName>,
    /// The healths of the last look.
    healths: Vec<DeviceHealth>,
    obstacles: Obstacles,
    /// Says whether the log has that the API server drops the devices.
    is_dropped: bool,
}

impl Reporter<'_> {
    fn add(&mut self, claim: ClaimName) {
        if self.waiting.len() < MAX_WAITING && !self.waiting.contains(&claim) {
            self.waiting.push_back(claim);
        }
    }

    /// Takes over the healths of a look, and reports each that differs from the last.
    fn hear(&mut self, healths: Vec<DeviceHealth>) {
        let is_known = |of: &DeviceHealth| {
            let mut last = self.healths.iter();
            last.any(|l| l.claim.is(&of.claim) && l.health == of.health)
        };
        let changed = healths.iter().filter(|of| !is_known(of));
        let changed: Vec<ClaimName> = changed.map(|of| (&of.claim).into()).collect();
        changed.into_iter().for_each(|claim| self.add(claim));
        self.healths = healths;
    }

    /// Reports the first claim. After an error it goes behind the others, and this returns false.
    async fn try_first(&mut self) -> bool {
        let Some(claim) = self.waiting.pop_front() else {
            return true;
        };
        let Err(e) = self.write(&claim).await else {
            self.obstacles.are_over();
            return true;
        };
        // The log gets one line until a write succeeds: the pods run all the same.
        if self.obstacles.is_new("") {
            tracing::warn!("{}", e.line());
        }
        self.waiting.push_back(claim);
        false
    }

    async fn write(&mut self, claim: &ClaimName) -> Result<()> {
        let found = api::claim(self.client, &claim.namespace, &claim.name).await?;
        let Some(found) = found.filter(|found| found.metadata.uid.as_ref() == Some(&claim.uid))
        else {
            return Ok(());
        };
        let config = self.config.clone();
        let held = ledger::blocking(move || ledger::held(&config)).await?;
        let now = Time(Timestamp::now());
        let Some(devices) = status::devices(&found, &held, &self.healths, self.node, &now) else {
            return Ok(());
        };
        match api::set_devices(self.client, &found, &devices).await? {
            Written::Done => self.is_dropped = false,
            Written::Lost => {}
            Written::Dropped => {
                let why = "cannot write the status of claims: the API server drops status.devices";
                let hint = "turn on the feature gate DRAResourceClaimDeviceStatus";
                if !mem::replace(&mut self.is_dropped, true) {
                    tracing::warn!("{}", Error::new(why).hint(hint).line());
                }
            }
        }
        Ok(())
    }
}
