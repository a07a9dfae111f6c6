//! A watch that goes on after every failure of the API server.
//!
//! After a failure, and after a watch that ended before its time, it lists all objects anew. An API server that comes back
//! with an older state has smaller versions than a watch that continues from a later one expects.

use super::{Client, PATIENCE, cause, in_time, late};
use crate::obstacle::Obstacles;
use futures::stream::{BoxStream, StreamExt, unfold};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use runmig_lease::error::Error;
use std::fmt::Debug;
use std::time::Duration;
use std::vec;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The seconds of one watch. The next one continues it. A connection that died without a word is noticed as late.
const SECONDS: u32 = 60;
/// The part of that after which the end is no surprise.
const FULL: Duration = Duration::from_secs(55);
/// The time after which a watch counts as one that works.
const HOLD: Duration = Duration::from_secs(1);

/// A change of the watched objects. A list is between `Init` and `InitDone`.
#[derive(Debug)]
pub(crate) enum Event<K> {
    /// The objects so far are forgotten.
    Init,
    /// An object of the list.
    InitApply(K),
    /// All objects are told.
    InitDone,
    /// An object is new or has changed.
    Apply(K),
    /// An object is gone.
    Delete(K),
}

/// A watch on some objects of one kind, without an end.
pub(crate) struct Watch<K> {
    api: Api<K>,
    /// The selector by fields.
    fields: String,
    /// The objects in words.
    what: &'static str,
    told: BoxStream<'static, Told<K>>,
    /// Says whether the last list succeeded.
    is_complete: bool,
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
        let api = Api::all(client);
        Watch {
            told: Session::start(api.clone(), fields.clone()),
            api,
            fields,
            what,
            is_complete: false,
            next_try: Instant::now(),
            obstacles: Obstacles::default(),
        }
    }

    /// Returns the next event. A future that is dropped loses none.
    pub(crate) async fn next(&mut self) -> Event<K> {
        loop {
            sleep_until(self.next_try).await;
            match self.told.next().await {
                Some(Told::Event(event)) => {
                    match event {
                        Event::Init => self.is_complete = false,
                        Event::InitDone => self.is_complete = true,
                        _ => {}
                    }
                    return event;
                }
                Some(Told::Holds) => {
                    if self.obstacles.are_over() {
                        tracing::info!("the API server tells {} again", self.what);
                    }
                }
                Some(Told::NoList(e)) => {
                    self.is_complete = false;
                    self.fail(e);
                }
                Some(Told::NoWatch(e)) => self.fail(e),
                None => self.restart(),
            }
        }
    }

    /// Returns whether the last list told all objects. Without a watch they may have changed since.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Lists all objects anew.
    pub(crate) fn restart(&mut self) {
        self.told = Session::start(self.api.clone(), self.fields.clone());
        self.is_complete = false;
    }

    fn fail(&mut self, e: Error) {
        let e = Error::new(format!("cannot watch {}", self.what)).caused_by(e);
        self.obstacles.warn(&e);
        self.next_try = Instant::now() + self.obstacles.pause();
    }
}

/// News of a session.
enum Told<K> {
    Event(Event<K>),
    /// The watch works.
    Holds,
    /// The list failed. A new one is next.
    NoList(Error),
    /// The watch failed. A list is next.
    NoWatch(Error),
}

/// Lists and watches in turn, at the pace at which it is asked.
struct Session<K> {
    api: Api<K>,
    fields: String,
    /// The version of the last news.
    version: String,
    step: Step<K>,
}

enum Step<K> {
    List,
    Tell(vec::IntoIter<K>),
    Start,
    Follow(Following<K>),
}

/// A watch at work.
struct Following<K> {
    events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
    start: Instant,
    holds: bool,
}

impl<K> Session<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    fn start(api: Api<K>, fields: String) -> BoxStream<'static, Told<K>> {
        let session = Session {
            api,
            fields,
            version: String::new(),
            step: Step::List,
        };
        let next = |mut session: Session<K>| async {
            let told = session.next().await;
            Some((told, session))
        };
        unfold(session, next).boxed()
    }

    async fn next(&mut self) -> Told<K> {
        loop {
            match &mut self.step {
                Step::List => {
                    let ours = ListParams::default().fields(&self.fields);
                    let list = match in_time(self.api.list(&ours)).await {
                        Ok(list) => list,
                        Err(e) => return Told::NoList(e),
                    };
                    self.version = list.metadata.resource_version.unwrap_or_default();
                    self.step = Step::Tell(list.items.into_iter());
                    return Told::Event(Event::Init);
                }
                Step::Tell(objects) => {
                    if let Some(object) = objects.next() {
                        return Told::Event(Event::InitApply(object));
                    }
                    self.step = Step::Start;
                    return Told::Event(Event::InitDone);
                }
                Step::Start => {
                    let ours = WatchParams::default().fields(&self.fields).timeout(SECONDS);
                    match in_time(self.api.watch(&ours, &self.version)).await {
                        Ok(events) => {
                            self.step = Step::Follow(Following {
                                events: events.boxed(),
                                start: Instant::now(),
                                holds: false,
                            });
                        }
                        Err(e) => return self.fail(e),
                    }
                }
                Step::Follow(watch) => {
                    let limit = match watch.holds {
                        true => Duration::from_secs(SECONDS.into()) + PATIENCE,
                        false => HOLD,
                    };
                    match timeout_at(watch.start + limit, watch.events.next()).await {
                        Ok(Some(event)) => {
                            if let Some(told) = self.see(event) {
                                return told;
                            }
                        }
                        Ok(None) if watch.start.elapsed() < HOLD => {
                            let why = "the API server has ended each watch at once";
                            return self.fail(Error::new(why));
                        }
                        Ok(None) => {
                            self.step = match watch.start.elapsed() < FULL {
                                true => Step::List,
                                false => Step::Start,
                            };
                        }
                        Err(_) if watch.holds => return self.fail(late()),
                        Err(_) => {
                            watch.holds = true;
                            return Told::Holds;
                        }
                    }
                }
            }
        }
    }

    /// Returns what an event of the watch tells.
    fn see(&mut self, event: kube::Result<WatchEvent<K>>) -> Option<Told<K>> {
        let event = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => Event::Apply(object),
            Ok(WatchEvent::Deleted(object)) => Event::Delete(object),
            Ok(WatchEvent::Bookmark(mark)) => {
                self.version = mark.metadata.resource_version;
                return None;
            }
            Ok(WatchEvent::Error(status)) => {
                return Some(self.fail(cause(kube::Error::Api(status))));
            }
            Err(e) => return Some(self.fail(cause(e))),
        };
        if let Event::Apply(object) | Event::Delete(object) = &event {
            self.version = object.resource_version().unwrap_or_default();
        }
        Some(Told::Event(event))
    }

    fn fail(&mut self, e: Error) -> Told<K> {
        self.step = Step::List;
        Told::NoWatch(e)
    }
}
