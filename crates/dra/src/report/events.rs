//! Events on the pods of a claim: pure, from news to objects, and the memory of those that were told.

use crate::driver::NAME as DRIVER;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use runmig_lease::ClaimNews;
use runmig_lease::store::{Claim, ClaimPod};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most pods of a claim that get an event.
pub(super) const MAX_PODS: usize = 8;
/// The most texts that this process remembers.
const MAX_TOLD: usize = 256;
/// The time in which the same text is told once. The kubelet repeats a Prepare every minute or two.
const ONCE: Duration = Duration::from_secs(600);
/// The longest text, and the longest name of the reporting process, in bytes.
const MAX_NOTE: usize = 1000;
const MAX_INSTANCE: usize = 128;
/// The longest part of a pod's name in that of an event, in bytes.
const MAX_PREFIX: usize = 200;

/// An event in the work on a device of a claim.
#[derive(Clone, Debug)]
pub(crate) struct News {
    /// The claim with the device.
    pub(crate) claim: Claim,
    /// The event.
    pub(crate) what: ClaimNews,
}

impl News {
    /// Returns the text for the pod.
    pub(super) fn note(&self) -> String {
        let (name, device) = (self.claim.full_name(), &self.claim.device);
        let note = match &self.what {
            ClaimNews::Moved { to, by } => {
                format!(
                    "the slice of claim {name} is at {to}, and not at the place of device {device}: {by}"
                )
            }
            ClaimNews::Waits { by } => {
                format!("the slice of claim {name} waits for {device}: {by}")
            }
        };
        cut(note, MAX_NOTE)
    }

    /// Returns the event for a pod.
    pub(super) fn event(&self, pod: &ClaimPod, node: &str, now: MicroTime) -> Event {
        let (reason, action) = match &self.what {
            ClaimNews::Moved { .. } => ("SliceMoved", "Promise"),
            ClaimNews::Waits { .. } => ("SliceWaits", "Prepare"),
        };
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(self.claim.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        };
        Event {
            type_: Some("Normal".to_owned()),
            reason: Some(reason.to_owned()),
            action: Some(action.to_owned()),
            note: Some(self.note()),
            ..about(regarding, node, now)
        }
    }
}

/// Returns a warning about a node, where `kubectl describe node` finds it.
pub(super) fn node_event(node: &str, note: &str, now: MicroTime) -> Event {
    let regarding = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        // As the kubelet has it in its own events.
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    };
    Event {
        type_: Some("Warning".to_owned()),
        reason: Some("OtherDriver".to_owned()),
        action: Some("Publish".to_owned()),
        note: Some(cut(note.to_owned(), MAX_NOTE)),
        ..about(regarding, node, now)
    }
}

/// Returns an event about an object, without its words.
fn about(regarding: ObjectReference, node: &str, now: MicroTime) -> Event {
    let name = regarding.name.clone().unwrap_or_default();
    // Objects without a namespace have their events in this one.
    let namespace = { regarding.namespace.clone() }.unwrap_or_else(|| "default".to_owned());
    Event {
        metadata: ObjectMeta {
            // The API server shortens it and adds random digits.
            generate_name: Some(format!("{}-", cut(name, MAX_PREFIX))),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        regarding: Some(regarding),
        event_time: Some(now),
        reporting_controller: Some(DRIVER.to_owned()),
        reporting_instance: Some(cut(node.to_owned(), MAX_INSTANCE)),
        ..Event::default()
    }
}

/// Cuts a text at a length in bytes.
fn cut(mut text: String, max: usize) -> String {
    let end = (0..=max.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    text
}

/// The texts of the last minutes, by pod.
#[derive(Debug, Default)]
pub(super) struct Told(VecDeque<(Instant, String, String)>);

impl Told {
    /// Notes a text for a pod. Returns false if the pod has it already.
    pub(super) fn note(&mut self, pod: &str, text: &str, now: Instant) -> bool {
        self.0
            .retain(|(then, _, _)| now.duration_since(*then) < ONCE);
        if self
            .0
            .iter()
            .any(|(_, its, told)| its == pod && told == text)
        {
            return false;
        }
        if self.0.len() >= MAX_TOLD {
            self.0.pop_front();
        }
        self.0.push_back((now, pod.to_owned(), text.to_owned()));
        true
    }

    /// Forgets a text, so that it is told again.
    pub(super) fn forget(&mut self, pod: &str, text: &str) {
        self.0.retain(|(_, its, told)| its != pod || told != text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_each_text_once() {
        let (mut told, now) = (Told::default(), Instant::now());
        assert!(told.note("p", "a", now));
        assert!(!told.note("p", "a", now + ONCE / 2));
        assert!(told.note("q", "a", now) && told.note("p", "b", now));
        assert!(told.note("p", "a", now + ONCE));
        told.forget("p", "a");
        assert!(told.note("p", "a", now + ONCE));
        for at in 0..2 * MAX_TOLD {
            told.note("p", &at.to_string(), now + ONCE);
        }
        assert_eq!(told.0.len(), MAX_TOLD);
    }

    #[test]
    fn event_keeps_limits() {
        let news = News {
            claim: Claim {
                namespace: "team-a".to_owned(),
                ..Claim::default()
            },
            what: ClaimNews::Waits {
                by: "ü".repeat(2000),
            },
        };
        let pod = ClaimPod {
            uid: "u".to_owned(),
            name: "p".repeat(253),
        };
        let now = MicroTime(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
        let event = news.event(&pod, &"n".repeat(253), now);
        assert!(event.note.unwrap().len() <= 1024);
        assert!(event.metadata.generate_name.unwrap().len() <= 253);
        assert!(event.reporting_instance.unwrap().len() <= 128);
        let regarding = event.regarding.unwrap();
        assert_eq!(regarding.name.as_deref(), Some(pod.name.as_str()));
        assert_eq!(regarding.namespace.as_deref(), Some("team-a"));
    }
}
