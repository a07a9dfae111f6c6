//! `migctl events`: an `Event` on each line. `runmig_lease::events` writes the same fields into the file.

use super::{ClaimItem, Placement};
use crate::cli::claims;
use runmig_lease::events::{Event, EventLease, EventSeconds};
use serde::Serialize;

/// Declares a struct whose fields are absent where they are not known.
macro_rules! sparse {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Serialize, Default)]
        #[serde(rename_all = "camelCase")]
        pub struct $name<'a> {
            $($(#[$of])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
        }
    };
}

/// Something that happened to a create, a lease, an instance or a record. Unknown fields are absent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventItem<'a> {
    /// The time by the machine's clock: RFC 3339, UTC.
    pub time: &'a str,
    /// The type: a word of docs/events.md.
    #[serde(rename = "type")]
    pub event_type: &'a str,
    /// The end of a create: a verdict of `explain`, `refused`, `driver`, `runtime`, `timed_out`, or for a success
    /// `created`, `reused`, `adopted` or `shared`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'a str>,
    /// The actor of a release: `hook`, `delete`, `create`, `gc`, `operator`, `eviction` or `claim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<&'a str>,
    /// The login that called the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The lease with its instance, an instance without a lease, or a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<EventLeaseItem<'a>>,
    /// The duration of each part, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<EventSecondsItem>,
    /// The file of a damaged record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<&'a str>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
}

/// The duration of each part, in seconds.
#[derive(Serialize)]
pub struct EventSecondsItem {
    /// All of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// The wait for room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<f64>,
    /// Calls of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<f64>,
    /// The low-level runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<f64>,
}

sparse! {
    /// A lease, an instance without one, or a request, in the fields of a `LeaseItem`. Unknown fields are absent.
    EventLeaseItem {
        /// The id of the lease, or of an instance without one.
        id: &'a str,
        /// The kind of the portion: `slice`, `share`, `seat` or `gpu`.
        kind: &'a str,
        /// The state at the event.
        state: &'a str,
        /// The container's id.
        container: &'a str,
        /// The claim of Kubernetes.
        claim: ClaimItem<'a>,
        /// The container's name in its pod.
        container_name: &'a str,
        /// The name of the pod; for a claim the first of its pods.
        pod: &'a str,
        /// The namespace of the pod.
        namespace: &'a str,
        /// The UID of the pod.
        #[serde(rename = "podUID")]
        pod_uid: &'a str,
        /// The absolute path of the OCI bundle.
        bundle: &'a str,
        /// The path of the low-level runtime.
        runtime: &'a str,
        /// The low-level runtime's `--root`.
        runtime_root: &'a str,
        /// The request.
        request: &'a str,
        /// The MIG profile; `share` or `gpu` without one.
        profile: &'a str,
        /// The memory in bytes of a share or seat, or that a whole GPU gives out.
        memory_bytes: u64,
        /// The memory in bytes that a share, a seat or a whole GPU books.
        booked_bytes: u64,
        /// The level at which the memory limit holds.
        enforcement: &'a str,
        /// The GPU's UUID.
        #[serde(rename = "gpuUUID")]
        gpu_uuid: &'a str,
        /// The GPU's index in NVML.
        gpu_index: u32,
        /// The MIG device's UUID.
        #[serde(rename = "migUUID")]
        mig_uuid: &'a str,
        /// The GPU instance's id on its GPU.
        #[serde(rename = "gpuInstanceID")]
        gpu_instance: u32,
        /// The compute instance's id in the GPU instance.
        #[serde(rename = "computeInstanceID")]
        compute_instance: u32,
        /// The memory slices that the GPU instance takes.
        mig_placement: Placement,
        /// The time of the create: RFC 3339, UTC.
        created: &'a str,
        /// The pid of the container's init in the pid namespace of the create.
        init_pid: i32,
        /// The driver's reason why the last release failed.
        error: &'a str,
        /// The number of failed releases.
        attempts: u32,
        /// The processes that had the slice open at the last failed release, as `PID NAME`.
        held_by: &'a [String],
        /// The time of the next release by itself: RFC 3339, UTC.
        next_attempt: &'a str,
        /// The time since which an idle slice has no container: RFC 3339, UTC.
        idle_since: &'a str,
        /// Whether an administrator made the instance.
        adopted: bool,
        /// The configuration of the layout that has the instance.
        layout: &'a str,
        /// The pod or the claim whose containers share the slice.
        shared_in: &'a str,
    }
}

impl<'a> From<&'a Event> for EventItem<'a> {
    fn from(event: &'a Event) -> Self {
        EventItem {
            time: event.time.as_str(),
            event_type: event.event_type.word(),
            verdict: event.verdict.as_deref(),
            actor: event.actor.as_deref(),
            user: event.user,
            lease: event.lease.as_ref().map(EventLeaseItem::from),
            seconds: event.seconds.map(EventSecondsItem::from),
            record: event.record.as_deref(),
            error: event.error.as_deref(),
        }
    }
}

impl From<EventSeconds> for EventSecondsItem {
    fn from(seconds: EventSeconds) -> Self {
        let EventSeconds {
            total,
            wait,
            driver,
            runtime,
        } = seconds;
        EventSecondsItem {
            total,
            wait,
            driver,
            runtime,
        }
    }
}

impl<'a> From<&'a EventLease> for EventLeaseItem<'a> {
    fn from(lease: &'a EventLease) -> Self {
        EventLeaseItem {
            id: lease.id.as_deref(),
            kind: lease.kind.as_deref(),
            state: lease.state.as_deref(),
            container: lease.container.as_deref(),
            claim: lease.claim.as_ref().map(claims::item_of),
            container_name: lease.container_name.as_deref(),
            pod: lease.pod.as_deref(),
            namespace: lease.namespace.as_deref(),
            pod_uid: lease.pod_uid.as_deref(),
            bundle: lease.bundle.as_deref(),
            runtime: lease.runtime.as_deref(),
            runtime_root: lease.runtime_root.as_deref(),
            request: lease.request.as_deref(),
            profile: lease.profile.as_deref(),
            memory_bytes: lease.memory_bytes,
            booked_bytes: lease.booked_bytes,
            enforcement: lease.enforcement.as_deref(),
            gpu_uuid: lease.gpu_uuid.as_deref(),
            gpu_index: lease.gpu_index,
            mig_uuid: lease.mig_uuid.as_deref(),
            gpu_instance: lease.gpu_instance,
            compute_instance: lease.compute_instance,
            mig_placement: lease.mig_placement.map(Placement::from),
            created: lease.created.as_deref(),
            init_pid: lease.init_pid,
            error: lease.error.as_deref(),
            attempts: lease.attempts,
            held_by: lease.held_by.as_deref(),
            next_attempt: lease.next_attempt.as_deref(),
            idle_since: lease.idle_since.as_deref(),
            adopted: lease.adopted,
            layout: lease.layout.as_deref(),
            shared_in: lease.shared_in.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::json::line;

    /// A line with every field, as the file has it.
    const LINE: &str = r#"{"apiVersion":"runmig.dev/v1","kind":"Event","time":"2026-11-24T09:12:03.117Z","type":"quarantined","verdict":"created","actor":"gc","user":1000,"lease":{"id":"0a","kind":"slice","state":"ready","container":"c","claim":{"uid":"u","namespace":"n","name":"m","request":"r","pool":"p","device":"d","pods":[{"uid":"v","name":"w"}]},"containerName":"main","pod":"w","namespace":"n","podUID":"v","bundle":"/b","runtime":"/r","runtimeRoot":"/q","request":"1g.10gb","profile":"1g.10gb","memoryBytes":1,"bookedBytes":2,"enforcement":"mig","gpuUUID":"GPU-1","gpuIndex":0,"migUUID":"MIG-1","gpuInstanceID":7,"computeInstanceID":0,"migPlacement":{"start":0,"size":1},"created":"2026-11-24T09:12:03Z","initPid":42,"error":"e","attempts":1,"heldBy":["1 a"],"nextAttempt":"2026-11-24T09:12:05Z","idleSince":"2026-11-24T09:12:05Z","adopted":false,"layout":"l","sharedIn":"s"},"seconds":{"total":0.25,"wait":0.0,"driver":0.125,"runtime":0.0625},"record":"leases/x","error":"e"}"#;

    #[test]
    fn event_is_printed_as_written() {
        let event: Event = serde_json::from_str(LINE).unwrap();
        assert_eq!(line(&EventItem::from(&event)), LINE);
    }
}
