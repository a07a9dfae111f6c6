//! kube's watch, with one line in the log for each obstacle, and a new list after every failure: an API server that comes back
//! with an older state has smaller versions than a watch that continues from a later one expects.

use super::{Client, PATIENCE, cause, late};
use crate::obstacle::Obstacles;
use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::Api;
pub(crate) use kube::runtime::watcher::Event;
use kube::runtime::watcher::{self, Config, watcher};
use runmig_lease::error::Error;
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// The seconds of one watch. The next one continues it. A connection that died without a word is noticed as late.
const SECONDS: u32 = 60;
/// The time after which a watch counts as one that works.
const HOLD: Duration = Duration::from_secs(1);

/// A watch on some objects of one kind, without an end.
pub(crate) struct Watch<K> {
    api: Api<K>,
    config: Config,
    /// The objects in words.
    what: &'static str,
    told: BoxStream<'static, watcher::Result<Event<K>>>,
    is_complete: bool,
    /// Whether a list is at work. An answer to it has to come in time.
    is_listing: bool,
    /// The time of the next try.
    next_try: Instant,
    obstacles: Obstacles,
}

impl<K> Watch<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Asks for nothing yet.
    pub(crate) fn new(client: Client, fields: String, what: &'static str) -> Watch<K> {
        let api: Api<K> = Api::all(client);
        let config = Config::default().fields(&fields).timeout(SECONDS);
        Watch {
            told: watcher(api.clone(), config.clone()).boxed(),
            api,
            config,
            what,
            is_complete: false,
            is_listing: true,
            next_try: Instant::now(),
            obstacles: Obstacles::default(),
        }
    }

    /// Returns the next event. A future that is dropped loses none.
    pub(crate) async fn next(&mut self) -> Event<K> {
        loop {
            sleep_until(self.next_try).await;
            let limit = match (self.is_listing, self.obstacles.tries()) {
                (true, _) => PATIENCE,
                (false, 0) => Duration::MAX,
                (false, _) => HOLD,
            };
            match timeout(limit, self.told.next()).await {
                Ok(Some(Ok(event))) => {
                    match event {
                        Event::Init => self.is_complete = false,
                        Event::InitDone => (self.is_complete, self.is_listing) = (true, false),
                        _ => {}
                    }
                    return event;
                }
                Ok(Some(Err(e))) => self.fail(in_words(e)),
                Ok(None) => self.list(),
                Err(_) if self.is_listing => self.fail(late()),
                Err(_) => {
                    self.obstacles.are_over();
                    tracing::info!("the API server tells {} again", self.what);
                }
            }
        }
    }

    /// Returns whether the last list told all objects. Without a watch they may have changed since.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Lists all objects anew.
    pub(crate) fn restart(&mut self) {
        self.is_complete = false;
        self.list();
    }

    fn list(&mut self) {
        self.told = watcher(self.api.clone(), self.config.clone()).boxed();
        self.is_listing = true;
    }

    fn fail(&mut self, e: Error) {
        let line = Error::new(format!("cannot watch {}", self.what)).caused_by(e);
        let line = line.line();
        if self.obstacles.is_new(&line) {
            tracing::warn!("{line}");
        }
        self.next_try = Instant::now() + self.obstacles.pause();
        self.list();
    }
}

fn in_words(e: watcher::Error) -> Error {
    match e {
        watcher::Error::InitialListFailed(e)
        | watcher::Error::WatchStartFailed(e)
        | watcher::Error::WatchFailed(e) => cause(e),
        watcher::Error::WatchError(status) => cause(kube::Error::Api(status)),
        e @ watcher::Error::NoResourceVersion => Error::new(e.to_string()),
    }
}
