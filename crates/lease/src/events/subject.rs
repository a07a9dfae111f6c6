//! The lease of an event, in the fields of `migctl list -o json`.

use crate::model::{Placement, Timestamp};
use crate::store::{Claim, Container, Entry, Holder, Lease};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The most pods of a claim, so that a line has a limit.
const MOST_PODS: usize = 32;

/// Declares a struct whose fields are absent where they are not known.
macro_rules! sparse {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$of])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
        }
    };
}

sparse! {
    /// A lease, an instance without one, or a request. The fields have the names and the form of `migctl list -o json`, and
    /// are absent where they are not known.
    EventLease {
        /// The id of the lease, or of an instance without one.
        id: String,
        /// The kind of the portion.
        kind: String,
        /// The state of the lease or the instance.
        state: String,
        /// The container's id.
        container: String,
        /// The claim of Kubernetes.
        claim: Claim,
        /// The container's name in its pod.
        container_name: String,
        /// The name of the pod; for a claim the first of its pods.
        pod: String,
        /// The namespace of the pod.
        namespace: String,
        /// The UID of the pod.
        #[serde(rename = "podUID")]
        pod_uid: String,
        /// The path of the bundle.
        bundle: String,
        /// The path of the low-level runtime.
        runtime: String,
        /// The low-level runtime's `--root`.
        runtime_root: String,
        /// The request.
        request: String,
        /// The MIG profile; `share` or `gpu` without one.
        profile: String,
        /// The memory in bytes of a share, a seat or a whole GPU.
        memory_bytes: u64,
        /// The memory in bytes that these book.
        booked_bytes: u64,
        /// The level at which the memory limit holds.
        enforcement: String,
        /// The UUID of the GPU.
        #[serde(rename = "gpuUUID")]
        gpu_uuid: String,
        /// The index of the GPU.
        gpu_index: u32,
        /// The UUID of the MIG device.
        #[serde(rename = "migUUID")]
        mig_uuid: String,
        /// The id of the GPU instance.
        #[serde(rename = "gpuInstanceID")]
        gpu_instance: u32,
        /// The id of the compute instance.
        #[serde(rename = "computeInstanceID")]
        compute_instance: u32,
        /// The memory slices of the GPU instance.
        mig_placement: Placement,
        /// The time of the create.
        created: String,
        /// The pid of the container's init.
        init_pid: i32,
        /// The error of the last release.
        error: String,
        /// The number of failed releases.
        attempts: u32,
        /// The processes that had the slice open at the last failed release.
        held_by: Vec<String>,
        /// The time of the next release by itself.
        next_attempt: String,
        /// The time since which an idle slice has no container.
        idle_since: String,
        /// Whether an administrator made the instance.
        adopted: bool,
        /// The configuration of the layout that has the instance.
        layout: String,
        /// The pod or the claim whose containers share the slice.
        shared_in: String,
    }
}

impl From<&Entry> for EventLease {
    fn from(entry: &Entry) -> EventLease {
        let (lease, instance) = (entry.lease(), entry.instance());
        let shown = entry.shown();
        let slice = instance.resource.mig_slice();
        let attempt = instance.attempt();
        EventLease {
            id: text(entry.id()),
            kind: text(shown.kind),
            state: text(entry.shown_state()),
            request: text(lease.map_or(shown.name, |l| &l.request)),
            profile: text(shown.name),
            memory_bytes: shown.memory_bytes,
            booked_bytes: shown.booked_bytes,
            enforcement: shown.enforcement.and_then(text),
            gpu_uuid: text(instance.resource.gpu_uuid().as_str()),
            gpu_index: Some(instance.resource.gpu_index()),
            mig_uuid: slice.and_then(|s| s.mig_uuid.clone()),
            gpu_instance: slice.and_then(|s| s.gpu_instance),
            compute_instance: slice.and_then(|s| s.compute_instance),
            mig_placement: slice.map(|s| s.placement),
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
            ..lease.map_or_else(EventLease::default, |l: &Lease| {
                EventLease::held_by(&l.holder)
            })
        }
    }
}

impl EventLease {
    /// Returns the fields of a holder.
    pub(crate) fn held_by(holder: &Holder) -> EventLease {
        match holder {
            Holder::Container(container) => EventLease::of_container(container),
            Holder::Claim(claim) => EventLease::of_claim(claim),
        }
    }

    fn of_container(container: &Container) -> EventLease {
        EventLease {
            container: text(&container.key.id),
            container_name: container.container_name.clone(),
            pod: container.pod.clone(),
            namespace: container.namespace.clone(),
            pod_uid: container.pod_uid.clone(),
            bundle: path(&container.bundle),
            runtime: path(&container.runtime),
            runtime_root: path(&container.key.root),
            ..EventLease::default()
        }
    }

    fn of_claim(claim: &Claim) -> EventLease {
        let first = claim.pods.first();
        EventLease {
            claim: Some(Claim {
                pods: claim.pods.iter().take(MOST_PODS).cloned().collect(),
                ..claim.clone()
            }),
            pod: first.map(|pod| pod.name.clone()),
            pod_uid: first.map(|pod| pod.uid.clone()),
            namespace: text(&claim.namespace),
            ..EventLease::default()
        }
    }

    /// Returns the name of the holder for people.
    pub(super) fn holder(&self) -> String {
        if let Some(claim) = &self.claim {
            return format!("claim {}", claim.full_name());
        }
        let name = self.container_name.as_ref();
        match (&self.namespace, &self.pod, name) {
            (Some(namespace), Some(pod), Some(name)) => format!("{namespace}/{pod}/{name}"),
            (Some(namespace), Some(pod), None) => format!("{namespace}/{pod}"),
            (_, _, Some(name)) => name.clone(),
            _ => self.container.clone().unwrap_or_default(),
        }
    }

    /// Returns the portion for people: `1g.10gb at 4:1 on GPU 0`, `share of GPU 1`, or the request.
    pub(super) fn portion(&self) -> String {
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

    /// Cuts every text to a length.
    pub(super) fn cut(&mut self, cut: impl Fn(&mut String)) {
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
            let Claim {
                uid,
                namespace,
                name,
                request,
                pool,
                device,
                pods,
            } = claim;
            [uid, namespace, name, request, pool, device]
                .into_iter()
                .for_each(&cut);
            let pods = pods
                .iter_mut()
                .flat_map(|pod| [&mut pod.uid, &mut pod.name]);
            pods.for_each(&cut);
        }
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn path(path: &Path) -> Option<String> {
    Some(path.to_string_lossy().into_owned())
}
