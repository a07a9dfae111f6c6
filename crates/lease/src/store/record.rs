//! One lease on disk: a line that says what the next line is and its hash, then the lease as JSON.
//!
//! Fields are only ever added. A reader keeps the fields that it does not know, so that an older
//! program can rewrite a newer one's lease; a record of another version it leaves alone and says so.

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
/// A lease is about 2 KiB; paths and pod names could make it a few times that.
const MAX_SIZE: u64 = 256 * 1024;

/// The largest size of a lease whose slice is about to be made: the rest is room for later facts,
/// since a record that could not be read back would lose its slice.
const MAX_SIZE_AT_FIRST: u64 = MAX_SIZE / 4;

/// Before it is written.
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

/// Ties a slice to a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Random; what the hook is told, so that a late one cannot mistake a successor.
    pub id: String,
    pub state: State,
    /// Instances do not survive a boot, and neither does a lease.
    pub boot_id: String,
    /// RFC 3339
    pub created: String,
    pub holder: Holder,
    pub slice: Slice,
    /// The process that makes the container; while it lives, nobody collects the lease.
    pub creator: Process,
    /// The low-level runtime it started, which goes on when its parent is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_process: Option<Process>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Process>,
    /// In which the processes and cgroups of this record are what they are called here. None in a record
    /// of an older program, and where there is no container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Namespaces>,
    /// Names of the container's cgroup, as path components.
    #[serde(default)]
    pub cgroups: Vec<String>,
    /// Tries to give it back that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// RFC 3339; since when a slice without a container waits for the next that asks for its profile.
    /// Such a lease is *releasing*: a program that does not know this field ends what it takes for
    /// begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<String>,
    /// An administrator made the instance, and it outlives the lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// The pod whose containers have the slice together, each with a lease of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_in: Option<String>,
    #[serde(flatten)]
    pub unknown: serde_json::Map<String, serde_json::Value>,
}

impl Lease {
    /// The state as people and programs are shown it: a slice that could not be destroyed is
    /// quarantined, not free and not in use.
    pub fn shown_state(&self) -> &'static str {
        match self.state {
            State::Creating => "creating",
            State::Ready => "ready",
            State::Releasing if self.is_quarantined() => "quarantined",
            State::Releasing if self.idle_since.is_some() => "idle",
            State::Releasing => "releasing",
        }
    }

    /// Neither free nor in use: its slice could not be destroyed.
    pub(crate) fn is_quarantined(&self) -> bool {
        self.state == State::Releasing && self.attempt.is_some()
    }

    /// Whether both are of one instance, and of one that was made: what is only planned has its place
    /// to itself.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// About to exist, or half made.
    Creating,
    /// The container has it.
    Ready,
    /// On its way out; the driver has not confirmed that it is gone.
    Releasing,
}

/// For whom: a container; all empty while there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    #[serde(flatten)]
    pub key: Key,
    /// Canonical path of the low-level runtime that made the container; told to people only.
    #[serde(default, rename = "lowLevelRuntime")]
    pub runtime: PathBuf,
    /// Canonical.
    pub bundle: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// The login that called the engine, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

/// Names a container: ids are not unique across the roots of low-level runtimes. The low-level
/// runtime itself is no part of the name, because an upgrade may move its file under a container that
/// runs. runc and crun with one root and one id collide anyway.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Empty. Earlier records have the path of the low-level runtime here, as part of the key. Such a
    /// record keeps its key, and so its file name, for its life: its hook finds it by its lease, gc
    /// collects it, and no delete finds it by its container.
    #[serde(default, rename = "runtime")]
    former_runtime: PathBuf,
    /// The low-level runtime's `--root`, resolved.
    pub root: PathBuf,
    pub id: String,
}

/// Whether both name one container, whichever version wrote them down.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        (&self.root, &self.id) == (&other.root, &other.id)
    }
}

impl Eq for Key {}

impl Key {
    pub fn new(root: PathBuf, id: String) -> Key {
        Key {
            former_runtime: PathBuf::new(),
            root,
            id,
        }
    }

    /// Returns the first part of the names of its records.
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

/// The slice: a GPU instance with the one compute instance that fills it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    /// As it was asked for.
    pub request: String,
    pub profile: String,
    #[serde(rename = "profileID")]
    pub profile_id: u32,
    #[serde(rename = "gpuUUID")]
    pub gpu_uuid: String,
    pub gpu_index: u32,
    pub gpu_minor: u32,
    pub placement: Placement,
    #[serde(
        rename = "gpuInstanceID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub gpu_instance: Option<u32>,
    #[serde(
        rename = "computeInstanceID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub compute_instance: Option<u32>,
    #[serde(rename = "migUUID", default, skip_serializing_if = "Option::is_none")]
    pub mig_uuid: Option<String>,
    /// Its compute instance is destroyed, and the GPU instance is next: whatever holds a compute
    /// instance there now is somebody else's, who came after us.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emptied: bool,
}

/// `1g.10gb at 4:1 on GPU 0`
impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (profile, placement, gpu) = (&self.profile, self.placement, self.gpu_index);
        write!(f, "{profile} at {placement} on GPU {gpu}")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    pub count: u32,
    pub error: String,
    /// The processes that had the instance open: `12345 python3`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
    /// RFC 3339; not before then is it tried again, unless somebody asks by hand.
    pub next: String,
}

/// Fails for a path that is not UTF-8: JSON cannot say it.
pub(crate) fn encode(lease: &Lease) -> Result<Vec<u8>> {
    let body = serde_json::to_vec(lease).map_err(|e| {
        Error::new(format!("cannot write the lease as JSON: {e}"))
            .hint("use a bundle, --root and low-level runtime whose paths are valid UTF-8")
    })?;
    Ok(frame(&body))
}

/// Returns the body with its header.
pub fn frame(body: &[u8]) -> Vec<u8> {
    FORM.frame(body)
}

pub fn decode(bytes: &[u8]) -> Result<Lease> {
    serde_json::from_str(FORM.body(bytes)?).context(|| "it is not a lease")
}

/// None when it has gone.
pub(super) fn read(file: &Path) -> Result<Option<Lease>> {
    let opened = match files::open(file, Links::Refuse) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).context(|| "open"),
    };
    let bytes = opened.read(MAX_SIZE).context(|| "read")?;
    decode(&bytes).map(Some)
}
