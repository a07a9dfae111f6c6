//! Reads and writes a lease on disk: a line with the format and hash of the next line, then the lease as
//! JSON.
//!
//! Versions of runmig only add fields. A reader keeps unknown fields, so that an older program can rewrite
//! a newer one's lease. It leaves a record of another version alone, and reports it.

use crate::error::{Context, Error, Result};
use crate::files::{self, Links};
use crate::framed::{Form, hex};
use crate::model::{Namespaces, Placement, Process};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const FORM: Form = Form {
    version: "runmig.dev/v1",
    kind: "Lease",
};
/// The limit of a record, in bytes. A lease is about 2 KiB; paths and pod names could make it a few times
/// longer.
const MAX_SIZE: u64 = 256 * 1024;

/// The largest size of a lease whose slice does not exist yet. The rest is room for later facts, because an
/// unreadable record would lose its slice.
const MAX_SIZE_AT_FIRST: u64 = MAX_SIZE / 4;

/// Checks the size of a lease before the write.
pub(crate) fn check_size(lease: &Lease, size: usize) -> Result<()> {
    let most = match lease.state {
        State::Creating => MAX_SIZE_AT_FIRST,
        State::Ready | State::Releasing => MAX_SIZE,
    };
    if size as u64 <= most {
        return Ok(());
    }
    Err(
        Error::new(format!("it would be {size} bytes, more than {most}"))
            .hint("give the container a shorter id, root, bundle and cgroup path"),
    )
}

/// The hold of a container on a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// A random id. The hook gets it as an argument, so that a late hook cannot mistake a successor.
    pub id: String,
    /// The state of the lease.
    pub state: State,
    /// The boot of the lease. Neither instances nor leases survive a boot.
    pub boot_id: String,
    /// The time of the create, in RFC 3339.
    pub created: String,
    /// The container.
    pub holder: Holder,
    /// The slice.
    pub slice: Slice,
    /// The process that makes the container. runmig does not collect the lease while it lives.
    pub creator: Process,
    /// The low-level runtime that the creator started. It goes on after a kill of the creator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_process: Option<Process>,
    /// The first process of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Process>,
    /// The namespaces in which the processes and cgroups of this record have these names. None in a record
    /// of an older program, and without a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Namespaces>,
    /// Names of the container's cgroup, as path components.
    #[serde(default)]
    pub cgroups: Vec<String>,
    /// The failed attempts to release the slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The time since which a slice without a container waits for the next request, in RFC 3339. The lease
    /// is *releasing* meanwhile: a program that does not know this field goes on with the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<String>,
    /// Says whether an administrator made the instance, which then outlives the lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// The pod whose containers share the slice, each with a lease of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_in: Option<String>,
    /// Fields of a newer version, which a rewrite keeps.
    #[serde(flatten)]
    pub unknown: serde_json::Map<String, serde_json::Value>,
}

impl Lease {
    /// Returns the state as `migctl` shows it. A slice that runmig could not destroy is `quarantined`.
    pub fn shown_state(&self) -> &'static str {
        match self.state {
            State::Creating => "creating",
            State::Ready => "ready",
            State::Releasing if self.is_quarantined() => "quarantined",
            State::Releasing if self.idle_since.is_some() => "idle",
            State::Releasing => "releasing",
        }
    }

    /// Returns whether the slice is neither free nor in use, because its destroy failed.
    pub(crate) fn is_quarantined(&self) -> bool {
        self.state == State::Releasing && self.attempt.is_some()
    }

    /// Returns whether both leases hold one existing instance. A planned instance has its place to itself.
    pub(crate) fn has_instance_of(&self, other: &Lease) -> bool {
        let instance = |l: &Lease| {
            let s = &l.slice;
            (
                l.boot_id.clone(),
                s.gpu_uuid.clone(),
                s.profile_id,
                s.placement,
                s.gpu_instance,
            )
        };
        self.slice.gpu_instance.is_some() && instance(self) == instance(other)
    }
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The instance is about to exist, or half made.
    Creating,
    /// The container has the slice.
    Ready,
    /// runmig releases the slice; the driver has not confirmed that the instance is gone.
    Releasing,
}

/// The container that holds a slice. All is empty without a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The name of the container.
    #[serde(flatten)]
    pub key: Key,
    /// The canonical path of the low-level runtime that made the container, for people only.
    #[serde(default, rename = "lowLevelRuntime")]
    pub runtime: PathBuf,
    /// The canonical path of the bundle.
    pub bundle: PathBuf,
    /// The namespace of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The UID of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The name of the container in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// The login that called the engine, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

/// The name of a container. Ids are not unique across the roots of low-level runtimes. The low-level
/// runtime itself is no part of the name, because an upgrade may move its file under a container that runs.
/// runc and crun with one root and one id collide anyway.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Empty. Earlier records have the path of the low-level runtime here, as part of the key. Such a
    /// record keeps its key, and so its file name, for its life. Its hook finds it by its lease, gc
    /// collects it, and no delete finds it by its container.
    #[serde(default, rename = "runtime")]
    former_runtime: PathBuf,
    /// The low-level runtime's `--root`, resolved.
    pub root: PathBuf,
    /// The id of the container.
    pub id: String,
}

/// Compares the names, in records of any version.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        (&self.root, &self.id) == (&other.root, &other.id)
    }
}

impl Eq for Key {}

impl Key {
    /// Names a container by its resolved root and its id.
    pub fn new(root: PathBuf, id: String) -> Key {
        Key {
            former_runtime: PathBuf::new(),
            root,
            id,
        }
    }

    /// Returns the first part of the names of the container's records.
    pub fn prefix(&self) -> String {
        use std::os::unix::ffi::OsStrExt;
        let mut hash = Sha256::new();
        for part in [
            self.former_runtime.as_os_str().as_bytes(),
            self.root.as_os_str().as_bytes(),
            self.id.as_bytes(),
        ] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let mut prefix = hex(&hash.finalize()[..12]);
        prefix.push('.');
        prefix
    }
}

impl Holder {
    /// Returns the path of the low-level runtime, also from a record that has it in its key.
    pub fn runtime(&self) -> &Path {
        match self.runtime.as_os_str().is_empty() {
            true => &self.key.former_runtime,
            false => &self.runtime,
        }
    }
}

/// A slice: a GPU instance with the one compute instance that fills it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    /// The request, as the user wrote it.
    pub request: String,
    /// The name of the profile.
    pub profile: String,
    /// The id of the profile.
    #[serde(rename = "profileID")]
    pub profile_id: u32,
    /// The UUID of the GPU.
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: String,
    /// The driver's index of the GPU.
    pub gpu_index: u32,
    /// The number of `/dev/nvidia<minor>`.
    pub gpu_minor: u32,
    /// The memory slices of the slice.
    pub placement: Placement,
    /// The id of the GPU instance, once it exists.
    #[serde(
        rename = "gpuInstanceID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub gpu_instance: Option<u32>,
    /// The id of the compute instance, once it exists.
    #[serde(
        rename = "computeInstanceID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub compute_instance: Option<u32>,
    /// The UUID of the MIG device, once it exists.
    #[serde(rename = "migUUID", default, skip_serializing_if = "Option::is_none")]
    pub mig_uuid: Option<String>,
    /// Says whether the compute instance is destroyed and the GPU instance is next. A compute instance
    /// there now belongs to another program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emptied: bool,
}

/// Formats a slice as `1g.10gb at 4:1 on GPU 0`.
impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (profile, placement, gpu) = (&self.profile, self.placement, self.gpu_index);
        write!(f, "{profile} at {placement} on GPU {gpu}")
    }
}

/// The failed attempts to release a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The number of attempts.
    pub count: u32,
    /// The error of the last attempt.
    pub error: String,
    /// The processes that had the instance open, such as `12345 python3`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
    /// The time before which only an operator tries again, in RFC 3339.
    pub next: String,
}

/// Returns a lease as bytes. It fails for a path that is not UTF-8, which JSON cannot express.
pub(crate) fn encode(lease: &Lease) -> Result<Vec<u8>> {
    let body = serde_json::to_vec(lease).map_err(|e| {
        Error::new(format!("cannot write the lease as JSON: {e}"))
            .hint("use a bundle, --root and low-level runtime whose paths are valid UTF-8")
    })?;
    Ok(frame(&body))
}

/// Returns the body with its header.
pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    FORM.frame(body)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Lease> {
    serde_json::from_str(FORM.body(bytes)?).context(|| "it is not a lease")
}

/// Reads a record. Returns none if the file is gone.
pub(super) fn read(file: &Path) -> Result<Option<Lease>> {
    let opened = match files::open(file, Links::Refuse) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).context(|| "open"),
    };
    let bytes = opened.read(MAX_SIZE).context(|| "read")?;
    decode(&bytes).map(Some)
}
