//! What an engine says of a container beside its request: who it is, and how long its create may
//! take. The keys are the engines' own (containerd, CRI-O, podman, nerdctl).

use super::{MAX_VALUE, shorten};
use crate::error::{Error, Result, printable};
use std::time::Duration;

/// How long an engine waits for a create, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub engine: &'static str,
    /// The longest wait for room that leaves time for the create itself.
    pub longest_wait: Duration,
    /// It then kills us and deletes nothing, so what we have begun must end with us.
    pub kills: bool,
}

/// The kubelet gives a call of the CRI two minutes. Then containerd kills us, which nobody hears of;
/// under CRI-O, which gives up after 240 s itself, we would go on and make a container that nobody
/// waits for. What is left is for the driver and the low-level runtime.
const LONGEST_WAIT_IN_KUBERNETES: Duration = Duration::from_secs(90);

/// Who the container is, in the words of the engine that called. By it are decided which
/// per-container key applies, whose limits count, and with which pod a slice is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub namespace: Option<String>,
    pub pod: Option<String>,
    pub pod_uid: Option<String>,
    pub container_name: Option<String>,
    pub sandbox: bool,
    /// What tells the pod from every other: its sandbox's id, else its namespace and uid.
    pub pod_key: Option<String>,
}

const CONTAINERD: &str = "containerd";

pub(super) fn deadline(annotations: &[(String, String)]) -> Option<Deadline> {
    let has = |prefix: &str| annotations.iter().any(|(key, _)| key.starts_with(prefix));
    let by = |manager: &str| {
        annotations
            .iter()
            .any(|(key, value)| key == "io.container.manager" && value == manager)
    };
    let engine = match () {
        // It borrows CRI-O's keys in pods.
        () if by("libpod") => return None,
        () if by("cri-o") || has("io.kubernetes.cri-o.") => "CRI-O",
        () if has("io.kubernetes.cri.") => CONTAINERD,
        () => return None,
    };
    Some(Deadline {
        engine,
        longest_wait: LONGEST_WAIT_IN_KUBERNETES,
        kills: engine == CONTAINERD,
    })
}

/// The engines' own annotations (containerd, CRI-O, podman, nerdctl).
pub fn identity(annotations: &[(String, String)]) -> Result<Identity> {
    let one = |keys: &[&str]| -> Result<Option<String>> {
        let mut found: Option<(&str, &str)> = None;
        for (key, value) in annotations
            .iter()
            .filter(|(k, _)| keys.contains(&k.as_str()))
        {
            match found {
                Some((first, text)) if text != value => {
                    return Err(Error::new(format!(
                        "annotations {first} and {key} contradict each other: \"{}\" and \"{}\"",
                        printable(&shorten(text)),
                        printable(&shorten(value))
                    )));
                }
                _ => found = Some((key, value)),
            }
        }
        Ok(found.map(|(_, value)| value.chars().take(MAX_VALUE).collect()))
    };
    let kind = one(&[
        "io.kubernetes.cri.container-type",
        "io.kubernetes.cri-o.ContainerType",
    ])?;
    let namespace = one(&[
        "io.kubernetes.cri.sandbox-namespace",
        "io.kubernetes.pod.namespace",
        "nerdctl/namespace",
    ])?;
    let pod_uid = one(&["io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"])?;
    let sandbox_id = one(&[
        "io.kubernetes.cri.sandbox-id",
        "io.kubernetes.cri-o.SandboxID",
    ])?;
    // An empty one would make one pod of many.
    let is_said = |text: &&String| !text.is_empty();
    let pod_key = match (sandbox_id.as_ref(), pod_uid.as_ref()) {
        (Some(id), _) if is_said(&id) => Some(format!("sandbox {id}")),
        (_, Some(uid)) if is_said(&uid) => {
            let namespace = namespace.as_deref().unwrap_or_default();
            Some(format!("pod {namespace}/{uid}"))
        }
        _ => None,
    };
    Ok(Identity {
        namespace,
        pod_key,
        pod: one(&["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"])?,
        pod_uid,
        container_name: one(&[
            "io.kubernetes.cri.container-name",
            "io.kubernetes.container.name",
            "nerdctl/name",
        ])?,
        sandbox: kind.as_deref() == Some("sandbox"),
    })
}
