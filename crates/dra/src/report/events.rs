//! Events on the pods of a claim: pure, from news to objects, and the memory of those that were told.

use crate::driver::NAME as DRIVER;
use crate::resource_slices::objects::cut;
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
        let (what, by) = match &self.what {
            ClaimNews::Moved { to, by } => {
                let place = format!("is at {to}, and not at the place of device {device}");
                (place, by)
            }
            ClaimNews::Waits { by } => (format!("waits for {device}"), by),
        };
        cut(&format!("the slice of claim {name} {what}: {by}"), MAX_NOTE)
    }

    /// Returns the event for a pod.
    pub(super) fn event(&self, pod: &ClaimPod, node: &str, now: MicroTime) -> Event {
        let (reason, action) = match &self.what {
            ClaimNews::Moved { .. } => ("SliceMoved", "Promise"),
            ClaimNews::Waits { .. } => ("SliceWaits", "Prepare"),
        };
        let namespace = &self.claim.namespace;
        let pod = object("Pod", Some(namespace), &pod.name, &pod.uid);
        event(pod, ["Normal", reason, action], &self.note(), node, now)
    }
}

/// Returns a warning about a node, where `kubectl describe node` finds it.
pub(super) fn node_event(node: &str, note: &str, now: MicroTime) -> Event {
    // The uid is the name, as the kubelet has it in its own events.
    let object = object("Node", None, node, node);
    let what = ["Warning", "OtherDriver", "Publish"];
    event(object, what, note, node, now)
}

fn object(kind: &str, namespace: Option<&str>, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Returns an event about an object: its type, reason and action, and the text.
fn event(
    regarding: ObjectReference,
    [type_, reason, action]: [&str; 3],
    note: &str,
    node: &str,
    now: MicroTime,
) -> Event {
    let name = regarding.name.as_deref().unwrap_or_default();
    // Objects without a namespace have their events in this one.
    let namespace = { regarding.namespace.clone() }.unwrap_or_else(|| "default".to_owned());
    Event {
        metadata: ObjectMeta {
            // The API server shortens it and adds random digits.
            generate_name: Some(format!("{}-", cut(name, MAX_PREFIX))),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        type_: Some(type_.to_owned()),
        reason: Some(reason.to_owned()),
        action: Some(action.to_owned()),
        note: Some(cut(note, MAX_NOTE)),
        regarding: Some(regarding),
        event_time: Some(now),
        reporting_controller: Some(DRIVER.to_owned()),
        reporting_instance: Some(cut(node, MAX_INSTANCE)),
        ..Event::default()
    }
}

/// The texts of the last minutes, by pod.
#[derive(Debug, Default)]
pub(super) struct Told(VecDeque<(Instant, String, String)>);

impl Told {
    /// Notes a text for a pod. Returns false if the pod has it already.
    pub(super) fn note(&mut self, pod: &str, text: &str, now: Instant) -> bool {
        let texts = &mut self.0;
        texts.retain(|(then, _, _)| now.duration_since(*then) < ONCE);
        if { texts.iter() }.any(|(_, its, told)| its == pod && told == text) {
            return false;
        }
        if texts.len() >= MAX_TOLD {
            texts.pop_front();
        }
        texts.push_back((now, pod.to_owned(), text.to_owned()));
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
