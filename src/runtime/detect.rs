//! Detects a request for slices. For a container without a request, runmig reads only the annotations.

use super::args::{Run, Unclear, Verb};
use super::{Front, delete, podman};
use crate::spec::Peek;
use crate::spec::bundle::{self, Bundle, peek_config};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::request::{self, Request};
use runmig_lease::store::ClaimName;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A create that concerns a slice.
pub struct Asking<'a> {
    pub id: &'a OsStr,
    pub stays: Stays,
    /// The annotations' request. Without a claim, `None` is for a container that no longer asks for a slice, while an
    /// earlier create of runmig left its edit in the bundle.
    pub request: Option<Request>,
    /// The devices of claims of Kubernetes that the container has.
    pub claims: Vec<ClaimName>,
    /// The annotations that the user or the engine set.
    pub annotations: Vec<(String, String)>,
    /// podman's name of the container.
    pub name: Option<String>,
    /// The canonical path of the bundle.
    pub bundle_path: PathBuf,
    pub bundle: Bundle,
}

/// The end of the low-level runtime: as soon as the container exists, or with the container.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    Until,
    While,
}

pub fn request<'a>(front: &'a Front<'_>) -> Result<Option<Asking<'a>>> {
    let (id, bundle, config, stays) = match &front.call.verb {
        Verb::Create(c) => (&c.id, &c.bundle, c.config.as_deref(), Stays::Until),
        Verb::Run(Run {
            create: c, detach, ..
        }) => {
            let stays = if *detach { Stays::Until } else { Stays::While };
            (&c.id, &c.bundle, c.config.as_deref(), stays)
        }
        Verb::Restore { id, bundle } => (id, bundle, None, Stays::Until),
        _ => return Ok(None),
    };
    let given = bundle.as_deref().unwrap_or(Path::new("."));
    let bundle = Bundle::open(given)?;
    let seen = match config {
        None => bundle.peek()?,
        Some(file) => peek_config(file)?,
    };
    if !may_ask(&seen) {
        return Ok(None);
    }
    let is_told = is_told(&seen);
    if let Some(doubt) = seen.doubt {
        return Err(Error::new(format!(
            "cannot tell from config.json whether the container asks for a slice: {doubt}"
        ))
        .hint("write each annotation once, as a string under the key annotations"));
    }
    let claims = claims(&seen)?;
    let other_kind = other_kind(front, &seen);
    let bundle_path =
        std::fs::canonicalize(given).context(|| format!("find bundle {}", given.display()))?;
    let (engine, name) = podman::look(&bundle_path);
    let annotations = request::believed(
        seen.annotations.into_iter().collect(),
        engine,
        front.config.policy.image_annotations,
    )?;
    let request = request::parse(&annotations)?;
    if request.is_none() && !is_told {
        return Ok(None);
    }
    if request.is_some() && !claims.is_empty() {
        return Err(Error::new(format!(
            "container {} has two requests: an annotation of runmig and a ResourceClaim",
            id.display()
        ))
        .hint("remove the annotation from the pod, or set slice.runmig.dev/CONTAINER: none for this container"));
    }
    if let Some(kind) = other_kind {
        return Err(Error::new(format!(
            "container {} asks for a GPU slice, and {kind} makes a virtual machine or a WebAssembly module, which gets no GPU",
            id.display()
        ))
        .hint("use runc or crun without such a handler, or remove the request"));
    }
    if let Verb::Restore { .. } = front.call.verb {
        return Err(Error::new(format!(
            "container {} asks for a GPU slice and cannot be restored: CUDA keeps state on the GPU \
             it was saved on",
            id.display()
        ))
        .hint("create it anew"));
    }
    if let Some(file) = config {
        return Err(Error::new(format!(
            "{} asks for a GPU slice, which is put into the config.json of a bundle only",
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
        id,
        stays,
        request,
        claims,
        annotations,
        name,
        bundle_path,
        bundle,
    }))
}

/// Refuses a call whose words runmig cannot read, if one of them names a bundle that asks, or a container that has a
/// slice. The working directory is a bundle where no word names another.
pub fn refuse_unclear<'a>(front: &Front<'_>, call: &Unclear) -> Result<Option<Asking<'a>>> {
    let refused = |what: String| {
        Err(Error::new(format!(
            "cannot read the arguments of {}: {}; {what}",
            call.command, call.why
        ))
        .hint(format!(
            "write options before the id: {} --bundle DIR ID",
            call.command
        )))
    };
    for word in &call.words {
        let bytes = word.as_bytes();
        let value = bytes
            .iter()
            .position(|b| *b == b'=')
            .map(|at| &bytes[at + 1..]);
        let joined = bytes.starts_with(b"-").then(|| bytes.get(2..)).flatten();
        for named in [Some(bytes), value, joined]
            .into_iter()
            .flatten()
            .map(OsStr::from_bytes)
        {
            if asks(Path::new(named))? {
                return refused(format!(
                    "{} may be the bundle, and asks for a GPU",
                    named.display()
                ));
            }
        }
        if call.command == "update" && delete::lease_of(front, word)?.is_some() {
            return refused(format!(
                "container {} has a slice, which the update may take away",
                word.display()
            ));
        }
    }
    match asks(Path::new("."))? {
        true => refused("the working directory may be the bundle, and asks for a GPU".to_owned()),
        false => Ok(None),
    }
}

/// Returns whether the bundle, or the configuration, at this path asks for a GPU or cannot be read.
fn asks(path: &Path) -> Result<bool> {
    let seen = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() && !bundle::is_gone(path) => Bundle::open(path)?.peek()?,
        // crun's --config
        Ok(found) if found.is_file() => match peek_config(path) {
            Ok(seen) => seen,
            Err(_) => return Ok(false),
        },
        _ => return Ok(false),
    };
    Ok(may_ask(&seen))
}

/// Returns whether a configuration asks without an annotation: by the edit of an earlier create, or by a claim.
fn is_told(seen: &Peek) -> bool {
    seen.marked || seen.attaches > 0
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

/// Returns the devices of claims in config.json.
///
/// # Errors
/// A hook of a claim that names no device, as no CDI file of `runmig-dra` has it.
pub fn claims(seen: &Peek) -> Result<Vec<ClaimName>> {
    if seen.claims.len() != seen.attaches {
        return Err(Error::new(
            "cannot tell from config.json which claim the container has: a hook runmig-claim names no device",
        )
        .hint("look for a CDI file with that hook, and delete it unless runmig-dra wrote it"));
    }
    Ok(seen.claims.clone())
}
