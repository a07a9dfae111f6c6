//! The CDI file of a claim: the edits that the engine makes to the containers of the claim's pods.
//!
//! The kubelet keeps the names of earlier answers and adds new ones to them, so a name follows from the claim's uid and
//! the device alone.

use crate::host::remove;
use runmig_lease::cdi::{CLAIM_FILE, Edits};
use runmig_lease::error::{Context, Result};
use runmig_lease::files::put;
use runmig_lease::model::DeviceNode;
use runmig_lease::store::Claim;
use runmig_lease::{paths, trust};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The vendor and the class of the devices.
const KIND: &str = "gpu.runmig.dev/slice";

/// The first version that has every field of these files, and names that begin with a digit.
const VERSION: &str = "0.5.0";

/// The first version that has groups.
const VERSION_WITH_GROUPS: &str = "0.7.0";

/// Seconds. The hook waits for the ledger's lock at most.
const HOOK_TIMEOUT_S: u32 = 30;

/// A slice for the containers of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The claim, with the device.
    pub(crate) claim: Claim,
    /// The UUID of the MIG device.
    pub(crate) mig_uuid: String,
    /// The device nodes.
    pub(crate) nodes: Vec<DeviceNode>,
}

/// Returns the name by which the engine finds a device of a claim.
pub(crate) fn id(claim: &Claim) -> String {
    format!("{KIND}={}", name(claim))
}

fn name(claim: &Claim) -> String {
    format!("{}-{}", claim.uid, claim.device)
}

/// Returns the content of a claim's file.
///
/// `files` are the edits that bring the driver's files, once for all devices. `hook` is the program that gives a container a lease of its own on its slice.
/// `title` tells the claim from the others of a container.
pub(crate) fn specification(title: &str, slices: &[Slice], files: &Edits, hook: &Path) -> Value {
    let call = |stage: &str, verb: &str, claim: &Claim| {
        json!({
            "hookName": stage,
            "path": hook,
            "args": ["runmig-claim", verb, "--claim", claim.uid, "--device", claim.device],
            "timeout": HOOK_TIMEOUT_S,
        })
    };
    let device = |slice: &Slice| {
        let claim = &slice.claim;
        // Each device of a request sets the variables, and the last one counts.
        let uuids: Vec<&str> = { slices.iter() }
            .filter(|other| request_of(other) == request_of(slice))
            .map(|other| other.mig_uuid.as_str())
            .collect();
        let (request, uuids) = (part(request_of(slice)), uuids.join(","));
        json!({
            "name": name(claim),
            "containerEdits": {
                "env": [
                    // nvidia-container-runtime adds devices by the image's value, unless it reads this one.
                    "NVIDIA_VISIBLE_DEVICES=void",
                    format!("{VARIABLE}{request}={uuids}"),
                    // A container may have two claims with requests of one name.
                    format!("{VARIABLE}{}__{request}={uuids}", part(title)),
                ],
                "deviceNodes": slice.nodes.iter().map(node).collect::<Vec<_>>(),
                "hooks": [
                    call("createRuntime", "attach", claim),
                    call("poststop", "detach", claim),
                ],
            },
        })
    };
    let version = match files.additional_gids.is_empty() {
        true => VERSION,
        false => VERSION_WITH_GROUPS,
    };
    let devices: Vec<Value> = slices.iter().map(device).collect();
    let mut specification = json!({"cdiVersion": version, "kind": KIND, "devices": devices});
    if *files != Edits::default() {
        specification["containerEdits"] = json!(files);
    }
    specification
}

/// The start of the variables that tell a container its slices.
const VARIABLE: &str = "RUNMIG_SLICE_";

/// Returns a name as a part of a variable's.
fn part(name: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    name.chars().map(plain).collect()
}

/// Returns the request of a slice without the alternative.
fn request_of(slice: &Slice) -> &str {
    let request = &slice.claim.request;
    request.split('/').next().unwrap_or_default()
}

fn node(node: &DeviceNode) -> Value {
    json!({
        "path": node.path,
        "type": "c",
        "major": node.major,
        "minor": node.minor,
        "fileMode": node.mode,
        "permissions": "rw",
    })
}

/// The folder of the files. It need not exist yet.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// Writes the file of a claim, completely or not at all.
    pub(crate) fn write(&self, uid: &str, specification: &Value) -> Result<()> {
        let file = self.file(uid);
        let what = || format!("write CDI file {}", file.display());
        fs::create_dir_all(&self.0).context(what)?;
        // The engine runs a file's hooks as root.
        trust::folder(&self.0).context(what)?;
        let unfinished = unfinished(&file);
        let written = write(&unfinished, specification.to_string().as_bytes());
        put(&unfinished, &file, written).context(what)
    }

    /// Removes the file of a claim, and one that a killed process did not finish. A missing file is no error.
    pub(crate) fn remove(&self, uid: &str) -> Result<()> {
        let file = self.file(uid);
        for file in [unfinished(&file), file] {
            remove(&file).context(|| format!("remove CDI file {}", file.display()))?;
        }
        Ok(())
    }

    /// Returns the uids of the claims that have a file, or an unfinished one.
    pub(crate) fn claims(&self) -> Result<BTreeSet<String>> {
        let what = || format!("list the CDI files in {}", self.0.display());
        let files = paths::list(&self.0).context(what)?;
        let uids = { files.iter() }.filter_map(|file| uid_of(file.file_name()?));
        Ok(uids.collect())
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.0.join(format!("{CLAIM_FILE}{uid}.json"))
    }
}

/// Returns the name of a file until it is complete. No reader of CDI files takes it for one.
fn unfinished(file: &Path) -> PathBuf {
    file.with_extension("new")
}

/// Returns the claim of a file by its name.
fn uid_of(name: &OsStr) -> Option<String> {
    let uid = name.to_str()?.strip_prefix(CLAIM_FILE)?;
    let uid = { uid.strip_suffix(".json") }.or_else(|| uid.strip_suffix(".new"));
    uid.map(str::to_owned)
}

fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // A killed process left it.
    remove(file)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    options.open(file)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(request: &str, device: &str, uuid: &str) -> Slice {
        let claim = Claim {
            uid: "u-1".to_owned(),
            request: request.to_owned(),
            device: device.to_owned(),
            ..Claim::default()
        };
        Slice {
            claim,
            mig_uuid: uuid.to_owned(),
            nodes: vec![DeviceNode {
                path: "/dev/nvidia-caps/nvidia-cap12".into(),
                major: 511,
                minor: 12,
                mode: 0o444,
            }],
        }
    }

    #[test]
    fn names_every_slice_of_request() {
        let slices = [
            slice("big-one/first", "a", "MIG-1"),
            slice("other", "b", "MIG-2"),
            slice("big-one/first", "c", "MIG-3"),
        ];
        let written = specification("gpu", &slices, &Edits::default(), Path::new("/hook"));
        let device = |at: usize| &written["devices"][at];
        assert_eq!(device(0)["name"], "u-1-a");
        assert_eq!(id(&slices[0].claim), "gpu.runmig.dev/slice=u-1-a");
        let env = |at: usize| &device(at)["containerEdits"]["env"];
        let both = json!([
            "NVIDIA_VISIBLE_DEVICES=void",
            "RUNMIG_SLICE_BIG_ONE=MIG-1,MIG-3",
            "RUNMIG_SLICE_GPU__BIG_ONE=MIG-1,MIG-3",
        ]);
        assert_eq!((env(0), env(2)), (&both, &both));
        assert_eq!(env(1)[1], "RUNMIG_SLICE_OTHER=MIG-2");
        let hooks = &device(0)["containerEdits"]["hooks"];
        let attach = ["runmig-claim", "attach", "--claim", "u-1", "--device", "a"];
        assert_eq!(
            (&hooks[0]["path"], &hooks[0]["args"]),
            (&json!("/hook"), &json!(attach))
        );
        assert_eq!(hooks[1]["hookName"], "poststop");
        let nodes = &device(0)["containerEdits"]["deviceNodes"];
        let node = json!({
            "path": "/dev/nvidia-caps/nvidia-cap12", "type": "c",
            "major": 511, "minor": 12, "fileMode": 0o444, "permissions": "rw",
        });
        assert_eq!(nodes, &json!([node]));
        assert_eq!(
            (&written["cdiVersion"], &written["containerEdits"]),
            (&json!("0.5.0"), &json!(null))
        );
    }

    #[test]
    fn brings_files_of_driver_once() {
        let edits = json!({
            "env": ["A=b"],
            "mounts": [{"hostPath": "/l", "containerPath": "/l", "options": ["ro"]}],
            "hooks": [{"hookName": "createContainer", "path": "/h", "args": ["h"]}],
            "additionalGids": [44],
        });
        let files: Edits = serde_json::from_value(edits.clone()).unwrap();
        let slices = [slice("a", "a", "MIG-1"), slice("b", "b", "MIG-2")];
        let written = specification("x", &slices, &files, Path::new("/hook"));
        assert_eq!(
            (&written["cdiVersion"], &written["containerEdits"]),
            (&json!("0.7.0"), &edits)
        );
    }

    #[test]
    fn leaves_whole_file_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder(dir.path().join("cdi"));
        let slices = [slice("r", "a", "MIG-1")];
        let text = specification("x", &slices, &Edits::default(), Path::new("/hook"));
        fs::create_dir(dir.path().join("cdi")).unwrap();
        let left = dir.path().join("cdi/gpu.runmig.dev-u-1.new");
        fs::write(&left, "half").unwrap();
        for _ in 0..2 {
            folder.write("u-1", &text).unwrap();
            let files: Vec<_> = fs::read_dir(dir.path().join("cdi")).unwrap().collect();
            assert_eq!(files.len(), 1);
            let read = fs::read(files[0].as_ref().unwrap().path()).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&read).unwrap(), text);
        }
        fs::write(dir.path().join("cdi/nvidia.yaml"), "").unwrap();
        fs::write(dir.path().join("cdi/gpu.runmig.dev-u-2.new"), "half").unwrap();
        let both = ["u-1", "u-2"].map(str::to_owned);
        assert_eq!(folder.claims().unwrap(), BTreeSet::from(both));
        assert!(Folder("/nowhere".into()).claims().unwrap().is_empty());
        // A folder in the place of the file: the rename fails.
        folder.remove("u-1").unwrap();
        folder.remove("u-1").unwrap();
        fs::create_dir(dir.path().join("cdi/gpu.runmig.dev-u-1.json")).unwrap();
        let line = folder.write("u-1", &text).unwrap_err().line();
        assert!(line.starts_with("cannot write CDI file "), "{line}");
        assert!(!left.exists());
    }
}
