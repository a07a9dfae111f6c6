//! A watch that goes on after every failure of the API server.
//!
//! After a failure it lists all objects anew. An API server that comes back with an older state has smaller versions than
//! a watch that continues from a later one expects.

use super::{Client, PATIENCE, cause};
use crate::obstacle::Obstacles;
use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use runmig_lease::error::Error;
use std::fmt::Debug;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The seconds of one watch. The next one continues it. A connection that died without a word is noticed as late.
const SECONDS: u32 = 60;

/// A watch on some objects of one kind, without an end.
pub(crate) struct Watch<K> {
    api: Api<K>,
    /// The selector by fields.
    fields: String,
    /// The objects in words.
    what: &'static str,
    stream: Option<BoxStream<'static, watcher::Result<Event<K>>>>,
    /// The end of the list. None when the list is complete.
    limit: Option<Instant>,
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
        Watch {
            api: Api::all(client),
            fields,
            what,
            stream: None,
            limit: None,
            next_try: Instant::now(),
            obstacles: Obstacles::default(),
        }
    }

    /// Returns the next event. A future that is dropped loses none.
    pub(crate) async fn next(&mut self) -> Event<K> {
        loop {
            sleep_until(self.next_try).await;
            let seen = match &mut self.stream {
                Some(stream) => match self.limit {
                    Some(limit) => timeout_at(limit, stream.next()).await,
                    None => Ok(stream.next().await),
                },
                None => {
                    let fields = watcher::Config::default().fields(&self.fields);
                    let stream = watcher(self.api.clone(), fields.timeout(SECONDS));
                    self.stream = Some(stream.boxed());
                    self.limit = Some(Instant::now() + PATIENCE);
                    continue;
                }
            };
            match seen {
                Ok(Some(Ok(event))) => {
                    self.note(&event);
                    return event;
                }
                Ok(Some(Err(e))) => self.fail(words(e)),
                Ok(None) => self.fail(Error::new("the watch ended")),
                Err(_) => self.fail(super::late()),
            }
        }
    }

    /// Returns whether all objects have been told since the last failure.
    pub(crate) fn is_complete(&self) -> bool {
        self.stream.is_some() && self.limit.is_none()
    }

    /// Lists all objects anew.
    pub(crate) fn restart(&mut self) {
        self.stream = None;
    }

    fn note(&mut self, event: &Event<K>) {
        match event {
            Event::Init => self.limit = Some(Instant::now() + PATIENCE),
            Event::InitDone => {
                self.limit = None;
                if self.obstacles.are_over() {
                    tracing::info!("the API server tells {} again", self.what);
                }
            }
            _ => {}
        }
    }

    fn fail(&mut self, e: Error) {
        self.stream = None;
        let line = Error::new(format!("cannot watch {}", self.what)).caused_by(e);
        let line = line.line();
        if self.obstacles.is_new(&line) {
            tracing::warn!("{line}");
        }
        self.next_try = Instant::now() + self.obstacles.pause();
    }
}

fn words(e: watcher::Error) -> Error {
    match e {
        watcher::Error::InitialListFailed(e)
        | watcher::Error::WatchStartFailed(e)
        | watcher::Error::WatchFailed(e) => cause(e),
        watcher::Error::WatchError(status) => cause(kube::Error::Api(status)),
        e => Error::new(e.to_string()),
    }
}
