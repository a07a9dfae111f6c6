//! A lease as people's programs see it.

use crate::model::{Placement, Timestamp};
use crate::store::{Claim, Container, Entry, Holder, Instance, Key};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The most pods of a claim in an event, so that a line has a limit.
const MOST_PODS: usize = 32;

/// Declares a struct whose fields are absent in JSON where they are not known, or do not apply.
macro_rules! sparse {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$of])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
        }
    };
}

pub(crate) use sparse;

sparse! {
    /// A lease, an instance without one, or a request: what `migctl list -o json`, events and the status of a claim show.
    /// Absent fields are not known or do not apply.
    LeaseView {
        /// The id of the lease, or of an instance without one: 32 hexadecimal digits.
        id: String,
        /// `slice`, `share`, `seat` for a share of a slice, or `gpu` for a whole GPU.
        kind: String,
        /// `promised` for a place that a claim of Kubernetes gets, `creating`, `ready`, `releasing`, `quarantined`,
        /// `idle`, or `layout` for an instance of a layout without a lease.
        state: String,
        /// The container's id as the engine gave it.
        container: String,
        /// The claim of Kubernetes that holds it.
        claim: Claim,
        /// The container's name in its pod, or podman's or docker's name for it.
        container_name: String,
        /// The name of the pod; for a claim the first of its pods.
        pod: String,
        /// The Kubernetes namespace of the pod or the claim.
        namespace: String,
        /// The UID of the pod.
        #[serde(rename = "podUID")]
        pod_uid: String,
        /// The absolute path of the OCI bundle.
        bundle: String,
        /// The path of the low-level runtime.
        runtime: String,
        /// The low-level runtime's `--root`.
        runtime_root: String,
        /// A profile, an amount of memory, a share as `share of 8Gi`, or whole GPUs as `1 GPU`.
        request: String,
        /// The MIG profile; `share` or `gpu` without one.
        profile: String,
        /// The memory of a share or a seat, or that a whole GPU gives out.
        memory_bytes: u64,
        /// The memory that a share, a seat or a whole GPU books.
        booked_bytes: u64,
        /// The memory that the processes of a share's container use now.
        used_bytes: u64,
        /// The part of `usedBytes` above the share.
        over_bytes: u64,
        /// The processes of a container with a share at `mps` that compute and are no MPS clients, by their pids on the
        /// host: they have no memory limit.
        around: Vec<u32>,
        /// The memory limit of a share's MPS server or cgroup, in whole GiB, where it is not that of the share; 0 for none,
        /// or for less than 1 GiB.
        limit_changed: u64,
        /// The level at which the memory limit holds: `mig`, `driver`, `mps`, or `none`.
        enforcement: String,
        /// The MPS daemon of a share at `mps`.
        daemon: DaemonView,
        /// The GPU's UUID: `GPU-…`.
        #[serde(rename = "gpuUUID")]
        gpu_uuid: String,
        /// The GPU's index in NVML, counted from 0.
        gpu_index: u32,
        /// The MIG device's UUID: `MIG-…`, once the driver has made it.
        #[serde(rename = "migUUID")]
        mig_uuid: String,
        /// The GPU instance's id on its GPU.
        #[serde(rename = "gpuInstanceID")]
        gpu_instance: u32,
        /// The compute instance's id in the GPU instance.
        #[serde(rename = "computeInstanceID")]
        compute_instance: u32,
        /// The memory slices that the GPU instance takes.
        mig_placement: Placement,
        /// The time of the create: RFC 3339, UTC.
        created: String,
        /// The pid of the container's init in the pid namespace of the create.
        init_pid: i32,
        /// The driver's reason why the last release failed.
        error: String,
        /// The number of failed releases.
        attempts: u32,
        /// The processes that had the slice open at the last failed release, as `PID NAME`.
        held_by: Vec<String>,
        /// The time of the next release by itself: RFC 3339, UTC.
        next_attempt: String,
        /// The time since which an idle slice has no container: RFC 3339, UTC.
        idle_since: String,
        /// Whether an administrator made the instance. Then it stays when the lease goes.
        adopted: bool,
        /// The configuration of the layout that has the instance: then it stays when the lease goes.
        layout: String,
        /// The pod or the claim whose containers share the slice.
        shared_in: String,
    }
}

sparse! {
    /// The MPS daemon of a share.
    DaemonView {
        /// The pid of the control program in the pid namespace of the create, once it is on record.
        pid: i32,
        /// Whether it lives; without it, new processes of the container have no memory limit.
        alive: bool,
        /// The number of restarts.
        restarts: u32,
    }
}

impl LeaseView {
    /// Says whether a user means the holder, as `Holder::is_called` does.
    pub fn is_called(&self, name: &str) -> bool {
        let claim = self.claim.clone().map(Holder::Claim);
        self.named().is_called(name) || claim.is_some_and(|claim| claim.is_called(name))
    }

    /// Returns the container by its names alone.
    fn named(&self) -> Container {
        Container {
            key: Key::new(PathBuf::new(), self.container.clone().unwrap_or_default()),
            namespace: self.namespace.clone(),
            pod: self.pod.clone(),
            container_name: self.container_name.clone(),
            ..Container::default()
        }
    }

    /// Adds the place of an instance, and the ids that the driver gave it.
    pub fn on(self, instance: &Instance) -> LeaseView {
        let slice = instance.slice();
        LeaseView {
            gpu_uuid: text(instance.resource.gpu_uuid().as_str()),
            gpu_index: Some(instance.resource.gpu_index()),
            mig_uuid: slice.and_then(|s| s.mig_uuid.clone()),
            gpu_instance: slice.and_then(|s| s.gpu_instance),
            compute_instance: slice.and_then(|s| s.compute_instance),
            mig_placement: slice.map(|s| s.placement),
            profile: slice.map(|s| s.profile.clone()),
            ..self
        }
    }
}

impl From<&Entry> for LeaseView {
    fn from(entry: &Entry) -> LeaseView {
        let (lease, instance) = (entry.lease(), entry.instance());
        let shown = entry.shown();
        let attempt = entry.attempt();
        let holder = lease.map(|lease| LeaseView::held_by(&lease.holder));
        LeaseView {
            id: text(entry.id()),
            kind: text(shown.kind.word()),
            state: text(entry.shown_state()),
            request: text(lease.map_or(shown.name, |l| &l.request)),
            profile: text(shown.name),
            memory_bytes: shown.memory_bytes,
            booked_bytes: shown.booked_bytes,
            enforcement: shown.enforcement.and_then(text),
            created: text(entry.created().as_str()),
            init_pid: lease.and_then(|l| l.init).map(|p| p.pid),
            error: attempt.map(|a| a.error.clone()),
            attempts: attempt.map(|a| a.count),
            held_by: attempt.map(|a| a.held_by.clone()),
            next_attempt: attempt.and_then(|a| text(a.next.as_str())),
            idle_since: { entry.idle_since() }.map(Timestamp::as_str).and_then(text),
            adopted: Some(instance.is_adopted()),
            layout: instance.layout.clone(),
            shared_in: lease.and_then(|l| l.shared_in.clone()),
            ..holder.unwrap_or_default().on(instance)
        }
    }
}

impl LeaseView {
    /// Returns the fields of a holder.
    pub(crate) fn held_by(holder: &Holder) -> LeaseView {
        match holder {
            Holder::Container(container) => LeaseView {
                container: text(&container.key.id),
                container_name: container.container_name.clone(),
                pod: container.pod.clone(),
                namespace: container.namespace.clone(),
                pod_uid: container.pod_uid.clone(),
                bundle: path(&container.bundle),
                runtime: path(&container.runtime),
                runtime_root: path(&container.key.root),
                ..LeaseView::default()
            },
            Holder::Claim(claim) => {
                let first = claim.pods.first();
                LeaseView {
                    claim: Some(claim.clone()),
                    pod: first.map(|pod| pod.name.clone()),
                    pod_uid: first.map(|pod| pod.uid.clone()),
                    namespace: text(&claim.namespace),
                    ..LeaseView::default()
                }
            }
        }
    }

    /// Returns the name of the holder for people.
    pub(crate) fn holder(&self) -> String {
        if let Some(claim) = &self.claim {
            return claim.title();
        }
        Holder::Container(self.named()).shown()
    }

    /// Returns the portion for people: `1g.10gb at 4:1 on GPU 0`, `share of GPU 1`, or the request.
    pub(crate) fn portion(&self) -> String {
        let name = self.profile.as_ref().or(self.request.as_ref());
        let Some(name) = name else {
            return String::new();
        };
        match (self.mig_placement, self.gpu_index) {
            (Some(at), Some(gpu)) => format!("{name} at {at} on GPU {gpu}"),
            (None, Some(gpu)) => format!("{name} on GPU {gpu}"),
            _ => name.clone(),
        }
    }

    /// Cuts every text to a length, and the pods of a claim.
    pub(crate) fn cut(&mut self, cut: impl Fn(&mut String)) {
        let texts = [
            &mut self.container,
            &mut self.container_name,
            &mut self.pod,
            &mut self.namespace,
            &mut self.pod_uid,
            &mut self.bundle,
            &mut self.runtime,
            &mut self.runtime_root,
            &mut self.request,
            &mut self.error,
            &mut self.shared_in,
        ];
        texts.into_iter().flatten().for_each(&cut);
        self.held_by.iter_mut().flatten().for_each(&cut);
        if let Some(claim) = &mut self.claim {
            claim.pods.truncate(MOST_PODS);
            let Claim {
                uid,
                namespace,
                name,
                request,
                pool,
                device,
                pods,
            } = claim;
            let of_pods = { pods.iter_mut() }.flat_map(|pod| [&mut pod.uid, &mut pod.name]);
            let texts = [uid, namespace, name, request, pool, device];
            texts.into_iter().chain(of_pods).for_each(&cut);
        }
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn path(path: &Path) -> Option<String> {
    Some(path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Held;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn record<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn instance(state: Value) -> Arc<Instance> {
        let slice = json!({
            "profile": "1g.10gb", "profileID": 19, "gpuUUID": "GPU-1", "gpuIndex": 1, "gpuMinor": 2, "memoryMiB": 9728,
            "placement": {"start": 4, "size": 1}, "gpuInstanceID": 11, "computeInstanceID": 3, "migUUID": "MIG-1",
        });
        record(json!({
            "id": "i", "created": "2026-01-01T00:00:00Z", "origin": "administrator", "state": state, "layout": "small",
            "resource": {"mig": slice},
        }))
    }

    fn held(holder: Value, portion: Value) -> Entry {
        let lease = json!({
            "id": "l", "instance": "i", "portion": portion, "state": "ready", "created": "2026-02-02T00:00:00Z",
            "request": "10Gi", "holder": holder, "creator": {"pid": 1, "startTime": 2}, "init": {"pid": 5, "startTime": 6},
            "sharedIn": "p",
        });
        Entry::Held(Held {
            lease: record(lease),
            instance: instance(json!("ready")),
        })
    }

    /// Returns a view as JSON, with these fields in the place of those of the slice.
    #[track_caller]
    fn shows(entry: &Entry, fields: Value) -> LeaseView {
        let mut all = json!({
            "profile": "1g.10gb", "gpuUUID": "GPU-1", "gpuIndex": 1, "migUUID": "MIG-1", "gpuInstanceID": 11,
            "computeInstanceID": 3, "migPlacement": {"start": 4, "size": 1}, "adopted": true, "layout": "small",
        });
        all.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let view = LeaseView::from(entry);
        let shown = serde_json::to_value(&view).unwrap();
        assert_eq!(shown, all);
        assert_eq!(serde_json::from_value::<LeaseView>(shown).unwrap(), view);
        view
    }

    #[test]
    fn shows_every_field_of_a_record() {
        let container = json!({
            "root": "/r", "id": "0123456789abcdef", "lowLevelRuntime": "/bin/runc", "bundle": "/b", "namespace": "ns",
            "pod": "web", "podUid": "u", "containerName": "main", "user": 7,
        });
        let share = json!({"share": {"memoryMiB": 1, "bookedMiB": 2, "enforcement": {"mps": {"ready": true, "restarts": 0}}}});
        let mut view = shows(
            &held(json!({"container": container}), share),
            json!({
                "id": "l", "kind": "seat", "state": "ready", "container": "0123456789abcdef", "containerName": "main",
                "pod": "web", "namespace": "ns", "podUID": "u", "bundle": "/b", "runtime": "/bin/runc", "runtimeRoot": "/r",
                "request": "10Gi", "memoryBytes": 1 << 20, "bookedBytes": 2 << 20, "enforcement": "mps",
                "created": "2026-02-02T00:00:00Z", "initPid": 5, "sharedIn": "p",
            }),
        );
        assert_eq!(
            (view.holder(), view.portion()),
            ("ns/web/main".into(), "1g.10gb at 4:1 on GPU 1".into())
        );
        assert!(view.is_called("main") && view.is_called("0123456789ab") && !view.is_called("web"));
        (view.mig_placement, view.created) = (None, Some("long".to_owned()));
        assert_eq!(view.portion(), "1g.10gb on GPU 1");
        (view.gpu_index, view.profile) = (None, None);
        assert_eq!(view.portion(), "10Gi");
        view.cut(|text| text.truncate(1));
        let cut = [&view.container, &view.pod_uid, &view.request, &view.created]
            .map(|text| text.as_deref().unwrap());
        assert_eq!(cut, ["0", "u", "1", "long"]);

        let pods: Vec<Value> = (0..40)
            .map(|n| json!({"uid": format!("u{n}"), "name": format!("web-{n}")}))
            .collect();
        let claim = json!({
            "uid": "claim-uid", "namespace": "ns", "name": "train", "request": "slice", "pool": "node", "device": "d",
            "pods": pods,
        });
        let mut view = shows(
            &held(json!({"claim": claim}), json!("all")),
            json!({
                "id": "l", "kind": "slice", "state": "ready", "claim": claim, "pod": "web-0", "podUID": "u0", "namespace": "ns",
                "request": "10Gi", "created": "2026-02-02T00:00:00Z", "initPid": 5, "sharedIn": "p", "enforcement": "mig",
            }),
        );
        assert_eq!(view.holder(), "claim ns/train");
        assert!(view.is_called("ns/train") && !view.is_called("train"));
        view.cut(|text| text.truncate(4));
        let claim = view.claim.unwrap();
        assert_eq!(
            (
                claim.uid.as_str(),
                claim.pods.len(),
                claim.pods[31].name.as_str()
            ),
            ("clai", 32, "web-")
        );

        let attempt = json!({"count": 2, "error": "in use", "heldBy": ["7 python"], "next": "2026-03-03T00:00:00Z"});
        let unleased = Entry::Unleased(instance(json!({"quarantined": attempt})));
        shows(
            &unleased,
            json!({
                "id": "i", "kind": "slice", "state": "quarantined", "request": "1g.10gb", "created": "2026-01-01T00:00:00Z",
                "error": "in use", "attempts": 2, "heldBy": ["7 python"], "nextAttempt": "2026-03-03T00:00:00Z",
                "enforcement": "mig",
            }),
        );
        let since = json!({"idle": {"since": "2026-04-04T00:00:00Z"}});
        shows(
            &Entry::Unleased(instance(since)),
            json!({
                "id": "i", "kind": "slice", "state": "idle", "request": "1g.10gb", "created": "2026-01-01T00:00:00Z",
                "idleSince": "2026-04-04T00:00:00Z", "enforcement": "mig",
            }),
        );
    }
}
