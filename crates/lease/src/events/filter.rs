//! The choice of events. Pure.

use super::event::Event;
use crate::policy::GpuName;
use crate::view::LeaseView;
use std::time::SystemTime;

/// The length from which the begin of a container's id stands for it. Engines print so much.
const SHORT: usize = 12;

/// The conditions on events. An event that lacks a field does not meet a condition on it.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// The earliest time.
    pub since: Option<SystemTime>,
    /// The latest time.
    pub until: Option<SystemTime>,
    /// The types by their words; empty for all.
    pub types: Vec<String>,
    /// The container's id, its first 12 characters or more, or its name in the pod.
    pub container: Option<String>,
    /// The namespace of the pod or the claim.
    pub namespace: Option<String>,
    /// The GPU.
    pub gpu: Option<GpuName>,
    /// The kind of the portion.
    pub kind: Option<String>,
}

impl EventFilter {
    /// Returns whether an event meets all conditions.
    pub fn has(&self, event: &Event) -> bool {
        let none = LeaseView::default();
        let lease = event.lease.as_ref().unwrap_or(&none);
        let is_in_time = match (self.since, self.until) {
            (None, None) => true,
            (since, until) => event.time.time().is_some_and(|time| {
                since.is_none_or(|since| time >= since) && until.is_none_or(|until| time <= until)
            }),
        };
        let word = event.event_type.word();
        let is = |wanted: &Option<String>, is: &Option<String>| wanted.is_none() || wanted == is;
        is_in_time
            && (self.types.is_empty() || self.types.iter().any(|t| t == word))
            && { self.container.as_deref() }.is_none_or(|name| is_container(lease, name))
            && is(&self.namespace, &lease.namespace)
            && is(&self.kind, &lease.kind)
            && self.gpu.as_ref().is_none_or(|gpu| {
                let of_lease = lease.gpu_index.zip(lease.gpu_uuid.as_deref());
                of_lease.is_some_and(|(index, uuid)| gpu.names(index, uuid))
            })
    }
}

fn is_container(lease: &LeaseView, name: &str) -> bool {
    let id = lease.container.as_deref().unwrap_or_default();
    let is_begin = name.len() >= SHORT && id.starts_with(name);
    id == name || is_begin || lease.container_name.as_deref() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::event::EventType;
    use std::time::Duration;

    #[test]
    fn event_meets_every_condition() {
        let event = Event {
            lease: Some(LeaseView {
                container: Some("0123456789abcdef".to_owned()),
                container_name: Some("main".to_owned()),
                namespace: Some("team-a".to_owned()),
                kind: Some("slice".to_owned()),
                gpu_index: Some(1),
                gpu_uuid: Some("GPU-1".to_owned()),
                ..LeaseView::default()
            }),
            ..Event::now(EventType::Ready)
        };
        let now = event.time.time().unwrap();
        let second = Duration::from_secs(1);
        let text = |text: &str| Some(text.to_owned());
        let has = |change: &dyn Fn(&mut EventFilter)| {
            let mut filter = EventFilter::default();
            change(&mut filter);
            filter.has(&event)
        };
        assert!(has(&|_| {}));
        assert!(has(&|f| (f.since, f.until) = (Some(now), Some(now))));
        assert!(!has(&|f| f.since = Some(now + second)));
        assert!(!has(&|f| f.until = Some(now - second)));
        assert!(has(
            &|f| f.types = vec!["refused".to_owned(), "ready".to_owned()]
        ));
        assert!(!has(&|f| f.types = vec!["refused".to_owned()]));
        for name in ["0123456789abcdef", "0123456789ab", "main"] {
            assert!(has(&|f| f.container = text(name)), "{name}");
        }
        assert!(!has(&|f| f.container = text("0123456789a")));
        assert!(has(&|f| f.namespace = text("team-a")) && !has(&|f| f.namespace = text("team-b")));
        assert!(has(&|f| f.kind = text("slice")) && !has(&|f| f.kind = text("gpu")));
        for (gpu, is_it) in [
            ("1", true),
            ("GPU-1", true),
            ("gpu-1", true),
            ("0", false),
            ("GPU-0", false),
        ] {
            assert_eq!(has(&|f| f.gpu = Some(gpu.parse().unwrap())), is_it, "{gpu}");
        }
        assert!("gpu0".parse::<GpuName>().is_err());
    }
}
