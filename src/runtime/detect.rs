//! Detects a request for slices. For a container without a request, runmig reads only the annotations.

use super::args::{Create, How, Unclear};
use super::{Front, companion, delete, podman};
use crate::spec::bundle::{self, Bundle, peek_config};
use crate::spec::{Mark, Marked, Peek};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::programs::CLAIM;
use runmig_lease::request::{self, Besides, DeviceRequest, Request};
use runmig_lease::store::ClaimName;
use runmig_lease::trust;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A create that concerns a slice.
pub struct Asking<'a> {
    pub id: &'a OsStr,
    /// Says whether the low-level runtime ends with the container, and not as soon as that exists.
    pub is_foreground: bool,
    /// The request. Without a claim, `None` is for a container that no longer asks for a slice, while an earlier create of
    /// runmig left its edit in the bundle.
    pub request: Option<Request>,
    /// The part of the request that CDI devices make.
    pub devices: Vec<DeviceRequest>,
    /// The devices of claims of Kubernetes that the container has.
    pub claims: Vec<ClaimName>,
    /// The annotations that the user or the engine set.
    pub annotations: Vec<(String, String)>,
    /// podman's name of the container.
    pub name: Option<String>,
    /// The canonical path of the bundle.
    pub bundle_path: PathBuf,
    pub bundle: Bundle,
    /// Its config.json, if it has no hook of runmig. It may have changed since.
    pub unmarked: Option<Vec<u8>>,
}

pub fn request<'a>(front: &Front<'_>, create: &'a Create) -> Result<Option<Asking<'a>>> {
    let given = create.bundle.as_deref().unwrap_or(Path::new("."));
    let (shown, config) = (create.id.display(), create.config.as_deref());
    let bundle = Bundle::open(given)?;
    // Then the runtime itself asks, for each container.
    let by_runtime = front.config.request.is_some();
    let seen = match config {
        None => bundle.peek(by_runtime)?,
        Some(file) => peek_config(file, by_runtime)?,
    };
    if !may_ask(&seen) && !by_runtime {
        return Ok(None);
    }
    if let Some(doubt) = seen.doubt {
        return Err(Error::new(format!(
            "cannot tell from config.json whether the container asks for a slice: {doubt}"
        ))
        .hint("write each annotation once, as a string under the key annotations"));
    }
    let Marked { claims, devices } = believed(&seen.marks)?;
    let is_told = seen.marked || !claims.is_empty();
    let other_kind = other_kind(front, &seen);
    let bundle_path =
        std::fs::canonicalize(given).context(|| format!("find bundle {}", given.display()))?;
    let (engine, name) = podman::look(&bundle_path);
    let is_podmans = name.as_deref().is_some_and(podman::is_its_own);
    if let (Some(device), true) = (devices.first(), is_podmans) {
        return Err(Error::new(format!(
            "device {device} is given to the pod, whose own container runs no program of the user's"
        ))
        .hint("give the device to a container of the pod"));
    }
    let policy = &front.config.policy;
    let annotations = seen.annotations.into_iter().collect();
    let besides = match by_runtime {
        _ if !devices.is_empty() => Besides::Device,
        true => Besides::Runtime,
        false => Besides::Nothing,
    };
    let annotations = request::believed(annotations, engine, policy.image_annotations, besides)?;
    let annotations = request::with_devices(annotations, &devices, policy.cdi_in_pods)?;
    let debugs = joins_container(&seen.namespaces);
    let request = asked(front, &annotations, !claims.is_empty(), is_podmans, debugs)?;
    if request.is_none() && !is_told {
        return Ok(None);
    }
    if request.is_some() && !claims.is_empty() {
        return Err(Error::new(format!(
            "container {shown} has two requests: an annotation or a device of runmig, and a ResourceClaim"
        ))
        .hint("remove the annotation from the pod, or set slice.runmig.dev/CONTAINER: none for this container"));
    }
    if let Some(kind) = other_kind {
        return Err(Error::new(format!(
            "container {shown} asks for a GPU, and {kind} makes a virtual machine or a WebAssembly module, which gets no GPU"
        ))
        .hint("use runc or crun without such a handler, or remove the request"));
    }
    if create.how == How::Restore {
        return Err(Error::new(format!(
            "container {shown} asks for a GPU and cannot be restored: CUDA keeps state on the GPU it was saved on"
        ))
        .hint("create it anew"));
    }
    if let Some(file) = config {
        return Err(Error::new(format!(
            "{} asks for a GPU, which is put into the config.json of a bundle only",
            file.display()
        ))
        .hint("call it config.json, without --config"));
    }
    if front.call.no_cgroup {
        return Err(Error::new(
            "a container without cgroups could open every GPU: nothing enforces its device rules",
        )
        .hint("take --cgroup-manager=disabled (podman: --cgroups=disabled) away"));
    }
    Ok(Some(Asking {
        id: &create.id,
        is_foreground: create.how == How::Run { detach: false },
        request,
        devices,
        claims,
        annotations,
        name,
        bundle_path,
        bundle,
        unmarked: seen.unmarked,
    }))
}

/// Refuses a call whose words runmig cannot read, if one of them names a bundle that asks, or a container that has a
/// slice. The working directory is a bundle where no word names another.
pub fn refuse_unclear(front: &Front<'_>, call: &Unclear) -> Result<()> {
    let refused = |what: String| {
        Err(Error::new(format!(
            "cannot read the arguments of {}: {}; {what}",
            call.command, call.why
        ))
        .hint(match call.command {
            "update" => "write update --resources FILE ID".to_owned(),
            command => format!(
                "write options before the id, each in full and a switch without a value: {command} --bundle DIR ID"
            ),
        }))
    };
    if call.command == "update" {
        for word in &call.words {
            if delete::lease_of(front, word)?.is_some() {
                return refused(format!(
                    "container {} has a slice, which the update may take away",
                    word.display()
                ));
            }
        }
        return Ok(());
    }
    let by_runtime = front.config.request.is_some();
    for word in &call.words {
        let bytes = word.as_bytes();
        let equals = bytes.iter().position(|b| *b == b'=');
        let value = equals.map(|at| &bytes[at + 1..]);
        let joined = bytes.strip_prefix(b"-").and_then(|rest| rest.get(1..));
        for named in [Some(bytes), value, joined].into_iter().flatten() {
            let named = Path::new(OsStr::from_bytes(named));
            if asks(named, by_runtime)? {
                let shown = named.display();
                return refused(format!("{shown} may be the bundle, and asks for a GPU"));
            }
        }
    }
    match asks(Path::new("."), by_runtime)? {
        true => refused("the working directory may be the bundle, and asks for a GPU".to_owned()),
        false => Ok(()),
    }
}

/// Returns whether the bundle, or the configuration, at this path asks for a GPU or cannot be read.
fn asks(path: &Path, by_runtime: bool) -> Result<bool> {
    let seen = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() && !bundle::is_gone(path) => {
            Bundle::open(path)?.peek(by_runtime)?
        }
        // crun's --config
        Ok(found) if found.is_file() => match peek_config(path, by_runtime) {
            Ok(seen) => seen,
            Err(_) => return Ok(false),
        },
        _ => return Ok(false),
    };
    Ok(may_ask(&seen) || by_runtime)
}

/// Returns whether a configuration asks without an annotation: by the edit of an earlier create, or by a CDI device.
fn is_told(seen: &Peek) -> bool {
    seen.marked || !seen.marks.is_empty()
}

/// Returns whether a configuration asks, or was meant to.
fn may_ask(seen: &Peek) -> bool {
    is_told(seen) || seen.annotations.keys().any(|key| request::may_ask(key))
}

/// Returns what makes something other than a container: an annotation of crun, or a name of crun under which it does so.
fn other_kind(front: &Front<'_>, seen: &Peek) -> Option<String> {
    const WORDS: [&str; 5] = ["krun", "wasm", "wamr", "spin", "crun-vm"];
    let is_one = |name: &str| WORDS.iter().any(|word| name.to_lowercase().contains(word));
    let named = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    let mut programs = [front.config.runtime.as_ref(), Some(&front.runtime.path)].into_iter();
    let program = programs.find_map(|path| path.and_then(named).filter(|name| is_one(name)));
    let asks = |(key, value): &(&String, &String)| match key.as_str() {
        "run.oci.handler" => is_one(value),
        // Its values are compat and compat-smart.
        "module.wasm.image/variant" => true,
        _ => false,
    };
    let annotation = || seen.annotations.iter().find(asks);
    { program.map(|name| format!("the low-level runtime {name}")) }
        .or_else(|| annotation().map(|(key, value)| format!("annotation {key}={value}")))
}

/// Returns what the marks ask for.
///
/// # Errors
/// A hook that has the name of a mark and is none, or is not the installed program.
fn believed(marks: &[Mark]) -> Result<Marked> {
    let mut marked = Marked::default();
    for mark in marks {
        match marked.take(mark)? {
            // The driver installs it anywhere on the node.
            Some(CLAIM) => {
                let path = Path::new(&mark.path);
                let found = trust::program(path).map_err(|e| mark.refused(e))?;
                if !path.is_absolute() || !found.0.ends_with(CLAIM) {
                    return Err(mark.refused("it leads to another program"));
                }
            }
            // Its path is that of the program beside this one, without links.
            Some(name) => {
                let installed = companion::program(name)?;
                if Path::new(&mark.path).as_os_str() != installed.as_os_str() {
                    let why = format!("the program of this runmig is {}", installed.display());
                    return Err(mark.refused(why));
                }
            }
            None => {}
        }
    }
    Ok(marked)
}

/// Returns the request of a container, from its annotations or from `[request]` in the configuration of a link `runmig-NAME`.
///
/// # Errors
/// A wrong request, and one beside a fixed request of the configuration.
fn asked(
    front: &Front<'_>,
    annotations: &[(String, String)],
    is_claimed: bool,
    is_podmans: bool,
    debugs: bool,
) -> Result<Option<Request>> {
    let Some(of_runtime) = &front.config.request else {
        return request::parse(annotations);
    };
    let file = front.config.file.clone().unwrap_or_default();
    let what = || format!("give the container the request of {}", file.display());
    let mut all = annotations.to_vec();
    of_runtime
        .add_to(&mut all, is_claimed, debugs)
        .context(what)?;
    if is_podmans || all == annotations {
        return request::parse(annotations);
    }
    request::parse(&all).context(what)
}

/// Returns whether a container of a pod, which joins namespaces with these paths by type, has the PID namespace of another one,
/// and not that of the sandbox: an ephemeral one of `kubectl debug --target`.
fn joins_container(namespaces: &BTreeMap<String, String>) -> bool {
    let process = |path: &String| {
        path.strip_prefix("/proc/")?
            .split('/')
            .next()
            .map(str::to_owned)
    };
    let of_sandbox = ["ipc", "uts", "network"].iter();
    let sandbox = { of_sandbox }.find_map(|kind| process(namespaces.get(*kind)?));
    match namespaces.get("pid").map(process) {
        // containerd names each by a process.
        Some(Some(pid)) => sandbox.is_some_and(|sandbox| pid != sandbox),
        // CRI-O pins that of a target, and names that of a sandbox by a process.
        Some(None) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_processes_of_containers_from_those_of_sandboxes() {
        let joins = |pairs: &[(&str, &str)]| {
            let all = { pairs.iter() }.map(|(kind, path)| ((*kind).into(), (*path).into()));
            joins_container(&all.collect())
        };
        let (pinned, own) = (("ipc", "/run/ipcns/x"), ("uts", "/proc/42/ns/uts"));
        assert!(joins(&[("pid", "/proc/7/ns/pid"), own]));
        assert!(joins(&[("pid", "/run/pidns/pid7"), pinned]));
        assert!(!joins(&[("pid", "/proc/42/ns/pid"), own]));
        assert!(!joins(&[("pid", "/proc/42/ns/pid"), own, pinned]));
        assert!(!joins(&[("pid", "/proc/42/ns/pid"), pinned]));
        assert!(!joins(&[("pid", "/proc/42/ns/pid")]));
        assert!(!joins(&[pinned, own]));
    }
}
