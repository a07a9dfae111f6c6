//! Events on the pods of a claim, and on a node: pure, from news to objects.
//!
//! An event's name follows from its object and its text. So a repeated text is a conflict while the API server keeps the first,
//! an hour by default. The kubelet repeats a Prepare every minute or two.

use crate::resource_slices::objects::cut;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use runmig_lease::ClaimNews;
use runmig_lease::framed::hex;
use runmig_lease::programs::DRIVER;
use runmig_lease::store::{Claim, ClaimPod};
use sha2::{Digest, Sha256};

/// The most pods of a claim that get an event.
pub(super) const MAX_PODS: usize = 8;
/// The longest text, and the longest name of the reporting process, in bytes.
const MAX_NOTE: usize = 1000;
const MAX_INSTANCE: usize = 128;

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
    let uid = regarding.uid.as_deref().unwrap_or_default();
    let hash = hex(&Sha256::digest(format!("{uid} {note}"))[..16]);
    // Objects without a namespace have their events in this one.
    let namespace = { regarding.namespace.clone() }.unwrap_or_else(|| "default".to_owned());
    Event {
        metadata: ObjectMeta {
            name: Some(format!("runmig-dra.{hash}")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    const UNIX_EPOCH: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn names_event_by_object_and_text() {
        let name = |node: &str, note: &str| {
            let event = node_event(node, note, MicroTime(UNIX_EPOCH));
            event.metadata.name.unwrap()
        };
        assert_eq!(name("a", "text"), name("a", "text"));
        assert_ne!(name("a", "text"), name("b", "text"));
        assert_ne!(name("a", "text"), name("a", "other"));
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
        let event = news.event(&pod, &"n".repeat(253), MicroTime(UNIX_EPOCH));
        assert!(event.note.unwrap().len() <= 1024);
        assert!(event.reporting_instance.unwrap().len() <= 128);
        let regarding = event.regarding.unwrap();
        assert_eq!(regarding.name.as_deref(), Some(pod.name.as_str()));
        assert_eq!(regarding.namespace.as_deref(), Some("team-a"));
    }
}
