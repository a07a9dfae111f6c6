//! An event, and its line of JSON. Pure.

use crate::model::Timestamp;
use crate::view::{LeaseView, sparse};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::{Duration, SystemTime};

/// Declares the types of events with their words.
macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// The type of an event. Later versions add types, and a reader keeps their words.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum EventType {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
            /// A type that this version does not know.
            #[serde(untagged)]
            Other(String),
        }

        impl EventType {
            /// Returns the word of the type.
            pub fn word(&self) -> &str {
                match self {
                    $(EventType::$name => $word,)*
                    EventType::Other(word) => word,
                }
            }
        }
    };
}

types! {
    /// A create ended without a container.
    Refused = "refused",
    /// A create began to wait for room.
    WaitBegun = "wait-begun",
    /// The wait of a create ended.
    WaitEnded = "wait-ended",
    /// A claim has a place, without hardware.
    Promised = "promised",
    /// A create took an idle slice.
    Reused = "reused",
    /// A create took an administrator's slice.
    Adopted = "adopted",
    /// A container joined the slice of its pod or claim.
    Shared = "shared",
    /// A create ended with a container or a prepared claim.
    Ready = "ready",
    /// A lease ended, or an operator ended an idle slice.
    Released = "released",
    /// An idle slice ended to make room.
    Evicted = "evicted",
    /// A collection ended a lease, or an idle slice whose time was over.
    Collected = "collected",
    /// An instance was made.
    Created = "created",
    /// An instance could not be destroyed.
    Quarantined = "quarantined",
    /// A quarantined instance was destroyed at last.
    Recovered = "recovered",
    /// A repair replaced a damaged ledger.
    RecordDamaged = "record-damaged",
    /// The GPUs have the instances of a layout.
    LayoutApplied = "layout-applied",
    /// An administrator closed a GPU for new leases.
    Cordoned = "cordoned",
    /// An administrator opened it again.
    Uncordoned = "uncordoned",
}

/// Something that happened to a create, a lease, an instance or a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The time of the event, by the machine's clock, which may have been set back.
    pub time: Timestamp,
    /// Its id. An event that was written again after a kill has the same one. None in lines of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The type of the event.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// The end of a create, in the words of `migctl explain` and of the counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The actor of a release, in the words of the counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The login that called the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The lease, its instance or both; of a create without a lease what the request names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// The times of a create or a release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<EventSeconds>,
    /// The folder of the damaged ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The administrator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

sparse! {
    /// The duration of each part, in seconds.
    EventSeconds {
        /// All of it.
        total: f64,
        /// The wait for room.
        wait: f64,
        /// Calls of the driver.
        driver: f64,
        /// The low-level runtime.
        runtime: f64,
    }
}

impl EventSeconds {
    /// Returns a duration as events have it: with the precision of a millisecond.
    pub(crate) fn of(time: Duration) -> Option<f64> {
        Some((time.as_secs_f64() * 1000.0).round() / 1000.0)
    }
}

impl Event {
    /// Returns an event of this moment without any field.
    pub(crate) fn now(event_type: EventType) -> Event {
        Event {
            time: Timestamp::millis(SystemTime::now()),
            id: None,
            event_type,
            verdict: None,
            actor: None,
            user: None,
            lease: None,
            seconds: None,
            record: None,
            error: None,
            reason: None,
        }
    }

    /// Returns the event with an id made of its kind and its lease or instance, so that a reader knows it again.
    pub(crate) fn once(self, kind: &str) -> Event {
        let of = self.lease.as_ref().and_then(|lease| lease.id.as_ref());
        Event {
            id: of.map(|id| format!("{kind}-{id}")),
            ..self
        }
    }

    /// Returns what the type does not say, for people.
    fn detail(&self) -> String {
        let lease = self.lease.as_ref();
        let layout = lease.and_then(|lease| lease.layout.clone());
        let gpu = lease.and_then(|lease| lease.gpu_uuid.clone());
        let is_cordon = [EventType::Cordoned, EventType::Uncordoned].contains(&self.event_type);
        let seconds = self.seconds.clone().unwrap_or_default();
        let wait = seconds.wait.filter(|wait| *wait > 0.0);
        let of_instance = lease.and_then(|lease| lease.error.as_ref());
        let parts = [
            self.verdict.clone(),
            self.actor.as_ref().map(|actor| format!("by {actor}")),
            self.record.clone(),
            gpu.filter(|_| is_cordon),
            self.reason.clone(),
            layout.filter(|_| self.event_type == EventType::LayoutApplied),
            seconds.total.map(|total| format!("{total:.3} s")),
            wait.map(|wait| format!("waited {wait:.3} s")),
            self.error.as_ref().or(of_instance).cloned(),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Names the event in one line: time, type, portion, holder, detail. Names in it are of others, so a terminal needs
/// [`printable`](crate::error::printable).
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.time, self.event_type.word())?;
        let lease = self.lease.as_ref();
        let of_lease = lease.map(|lease| [lease.portion(), lease.holder()]);
        let parts = of_lease.into_iter().flatten().chain([self.detail()]);
        for part in parts.filter(|part| !part.is_empty()) {
            write!(f, " {part}")?;
        }
        Ok(())
    }
}

/// The value of `apiVersion`.
const API_VERSION: &str = "runmig.dev/v1";
/// The value of `kind`.
const KIND: &str = "Event";

/// The longest error in an event, and the longest other text, in bytes.
const MAX_ERROR: usize = 4096;
const MAX_TEXT: usize = 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    event: &'a Event,
}

/// Returns the line of an event, with its end. Long texts are cut.
pub(super) fn encode(mut event: Event) -> Vec<u8> {
    event.error.iter_mut().for_each(|text| cut(text, MAX_ERROR));
    event.record.iter_mut().for_each(|text| cut(text, MAX_TEXT));
    if let Some(lease) = &mut event.lease {
        lease.cut(|text| cut(text, MAX_TEXT));
    }
    let line = Line {
        api_version: API_VERSION,
        kind: KIND,
        event: &event,
    };
    let mut text = serde_json::to_vec(&line).expect("only strings are keys");
    text.push(b'\n');
    text
}

fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
}

/// Reads a line. Returns none for one that is damaged or of another version.
pub(super) fn decode(line: &[u8]) -> Option<Event> {
    let line: Value = serde_json::from_slice(line).ok()?;
    if line["apiVersion"] != API_VERSION || line["kind"] != KIND {
        return None;
    }
    serde_json::from_value(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            seconds: Some(EventSeconds {
                total: Some(0.25),
                ..EventSeconds::default()
            }),
            lease: Some(LeaseView {
                container: Some("a\"\n{".to_owned()),
                ..LeaseView::default()
            }),
            ..Event::now(EventType::Ready)
        }
    }

    #[test]
    fn line_has_event_as_written() {
        let event = event();
        let line = encode(event.clone());
        assert!(
            line.starts_with(b"{\"apiVersion\":\"runmig.dev/v1\",\"kind\":\"Event\",\"time\":")
        );
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(decode(&line), Some(event));
    }

    #[test]
    fn line_for_people_says_what_the_type_does_not() {
        let of = |event_type| Event {
            actor: Some("gc".to_owned()),
            seconds: Some(EventSeconds {
                total: Some(0.25),
                wait: Some(1.5),
                ..EventSeconds::default()
            }),
            lease: Some(LeaseView {
                container: Some("train".to_owned()),
                gpu_uuid: Some("GPU-1".into()),
                layout: Some("all".to_owned()),
                error: Some("in use".to_owned()),
                ..LeaseView::default()
            }),
            reason: Some("a repair".to_owned()),
            ..Event::now(event_type)
        };
        for (event_type, line) in rows! {
            EventType::Ready => "ready train by gc, a repair, 0.250 s, waited 1.500 s, in use";
            EventType::Cordoned => "cordoned train by gc, GPU-1, a repair, 0.250 s, waited 1.500 s, in use";
            EventType::LayoutApplied => "layout-applied train by gc, a repair, all, 0.250 s, waited 1.500 s, in use";
        } {
            let event = of(event_type);
            assert_eq!(event.to_string(), format!("{} {line}", event.time));
        }
    }

    #[test]
    fn newer_version_is_not_read() {
        let text = String::from_utf8(encode(event())).unwrap();
        for (from, to) in [
            ("runmig.dev/v1", "runmig.dev/v2"),
            ("\"Event\"", "\"Layout\""),
        ] {
            assert_eq!(decode(text.replace(from, to).as_bytes()), None);
        }
        let newer = text.replace("\"ready\"", "\"mode-changed\"");
        let newer = decode(newer.as_bytes()).unwrap();
        assert_eq!(newer.event_type.word(), "mode-changed");
    }

    #[test]
    fn long_texts_are_cut() {
        let mut long = event();
        long.error = Some("é".repeat(1 << 20));
        long.lease.as_mut().unwrap().request = Some("\u{1}".repeat(1 << 20));
        let line = encode(long);
        assert!(line.len() < 10 * MAX_ERROR);
        assert!(decode(&line).is_some());
    }
}
