//! Edits hooks: runmig's own, first in their lists and recognised by their arguments, and the hooks of the driver's
//! files.

use super::document::{Document, array, get_mut, object, wrong_kind};
use oci_spec::runtime::{Hook, HookBuilder};
use runmig_lease::cdi;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::model::LeaseId;
use runmig_lease::programs::HOOK;
use runmig_lease::request::{self, DeviceRequest};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The argument of runmig's hook that marks an edit of runmig. A hook that an administrator puts into
/// hooks.d has the same `argv[0]` but no lease.
const LEASE_FLAG: &str = "--lease";

/// The argument of runmig's hook that limits the container's memory in the driver. It comes before the lease.
const LIMIT_FLAG: &str = "--limit";

/// The argument of runmig's hook that keeps what a CDI device asked, `slice=1g.10gb`: the edit has no hook of the device.
pub const ASKED_FLAG: &str = "--asked";

/// The lists with hooks of runmig: the release, and the limit.
pub const STAGES: [&str; 2] = ["poststop", "createRuntime"];

/// NVIDIA's programs that are prestart hooks.
const NVIDIA: [&str; 2] = ["nvidia-container-runtime-hook", "nvidia-container-toolkit"];

/// The environment of a hook that has none. Low-level runtimes would give it their own. runc 1.1 gives
/// createContainer hooks the container's environment, where an image could set LD_PRELOAD (CVE-2025-23266).
const PLAIN_ENV: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The poststop hook that releases the slices, and its companion in createRuntime.
#[derive(Clone, Debug)]
pub struct HookCommand {
    /// The absolute path of the hook.
    pub path: PathBuf,
    /// The random lease ids. `--lease ID` for each stands first among the arguments.
    pub leases: Vec<LeaseId>,
    /// The arguments after the leases.
    pub args: Vec<String>,
    pub env: Vec<String>,
    pub timeout_s: u32,
    /// Says whether the same program limits the container's memory before a process of the image runs.
    pub limits: bool,
}

/// Returns whether these are the arguments of a hook of runmig.
pub fn is_ours<'a>(args: impl Iterator<Item = &'a str>) -> bool {
    let mut args = args.peekable();
    let is_named = args.next() == Some(HOOK);
    args.next_if_eq(&LIMIT_FLAG);
    is_named && args.next() == Some(LEASE_FLAG)
}

/// Returns the requests of CDI devices that the arguments of a hook of runmig keep.
pub fn asked(args: &[String]) -> Vec<DeviceRequest> {
    let kept = args.windows(2).filter(|pair| pair[0] == ASKED_FLAG);
    kept.filter_map(|pair| request::device_request(&pair[1]))
        .collect()
}

/// Returns a config.json whose hook of runmig names this lease; none if the bytes are another file.
pub fn edit_for(bytes: &[u8], lease: &LeaseId) -> Option<Value> {
    let lease = lease.as_str();
    let text = std::str::from_utf8(bytes).ok()?;
    // Most files without an edit of runmig do not even contain the id.
    if lease.is_empty() || !text.contains(lease) {
        return None;
    }
    let config: Value = serde_json::from_str(text).ok()?;
    let poststop = config.pointer("/hooks/poststop").and_then(Value::as_array);
    let mut all = poststop.into_iter().flatten().filter_map(|h| h.get("args"));
    let names_it = all.any(|args| {
        let words: Vec<&str> = { args.as_array().into_iter().flatten() }
            .map_while(Value::as_str)
            .collect();
        is_ours(words.iter().copied()) && words.windows(2).any(|w| w == [LEASE_FLAG, lease])
    });
    names_it.then_some(config)
}

/// Puts runmig's hooks first, because low-level runtimes stop at a hook that fails.
pub fn put_first(document: &mut Document, command: &HookCommand) -> Result<()> {
    if command.timeout_s == 0 {
        return Err(Error::new("the poststop hook has no timeout"));
    }
    let ours = |flag: Option<&str>| {
        let mut args = vec![HOOK.to_owned()];
        args.extend(flag.map(str::to_owned));
        for lease in &command.leases {
            args.extend([LEASE_FLAG.to_owned(), lease.to_string()]);
        }
        args.extend_from_slice(&command.args);
        let (env, timeout) = (command.env.clone(), Some(command.timeout_s.into()));
        to_value(&hook(&command.path, args, env, timeout)?)
    };
    list(document, "poststop")?.insert(0, ours(None)?);
    if command.limits {
        list(document, "createRuntime")?.insert(0, ours(Some(LIMIT_FLAG))?);
    }
    Ok(())
}

/// Removes runmig's hooks with any lease, and the objects that only they needed.
pub fn take_out(document: &mut Document) -> Result<()> {
    remove(document, &STAGES, |hook| {
        hook.get("args").is_some_and(args_are_ours)
    })
    .map(drop)
}

/// Removes the hooks by which docker and old versions of podman and CRI-O give a container GPUs, and returns their
/// paths. Such a hook would add what `NVIDIA_VISIBLE_DEVICES` names once more, or fail.
pub fn take_out_nvidia(document: &mut Document) -> Result<Vec<String>> {
    let path = |hook: &Value| hook.get("path").and_then(Value::as_str).map(str::to_owned);
    let is_nvidia = |hook: &Value| {
        let path = path(hook).unwrap_or_default();
        let name = Path::new(&path).file_name();
        name.is_some_and(|name| NVIDIA.iter().any(|hook| name == *hook))
    };
    let removed = remove(document, &cdi::STAGES, is_nvidia)?;
    Ok(removed.iter().filter_map(path).collect())
}

/// Removes and returns the hooks of these lists that are meant, and removes the objects that only they needed.
pub fn remove(
    document: &mut Document,
    stages: &[&str],
    is_meant: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>> {
    let mut removed = Vec::new();
    let Some(hooks) = get_mut(&mut document.root, "hooks") else {
        return Ok(removed);
    };
    let hooks = hooks
        .as_object_mut()
        .ok_or_else(|| wrong_kind("hooks", "object"))?;
    let mut is_changed = false;
    for stage in stages {
        let Some(list) = get_mut(hooks, stage) else {
            continue;
        };
        let list = list
            .as_array_mut()
            .ok_or_else(|| wrong_kind(&format!("hooks.{stage}"), "array"))?;
        let before = removed.len();
        removed.extend(list.extract_if(.., |hook| is_meant(hook)));
        if before < removed.len() && list.is_empty() {
            hooks.shift_remove(*stage);
            is_changed = true;
        }
    }
    if is_changed && hooks.is_empty() {
        document.root.shift_remove("hooks");
    }
    Ok(removed)
}

fn args_are_ours(args: &Value) -> bool {
    let args = args.as_array().map_or(&[][..], Vec::as_slice);
    is_ours(args.iter().map_while(Value::as_str))
}

/// Returns a hook for the file, always with an environment of its own.
pub fn hook(
    path: &Path,
    args: Vec<String>,
    mut env: Vec<String>,
    timeout: Option<i64>,
) -> Result<Hook> {
    if !path.is_absolute() {
        return Err(Error::new(format!(
            "hook {} is not an absolute path",
            path.display()
        )));
    }
    if env.is_empty() {
        env.push(PLAIN_ENV.into());
    }
    let mut hook: Hook = HookBuilder::default()
        .path(path)
        .env(env)
        .build()
        .context(|| format!("make hook {}", path.display()))?;
    hook.set_args((!args.is_empty()).then_some(args));
    hook.set_timeout(timeout);
    Ok(hook)
}

/// Appends a hook if it is missing.
pub fn append(document: &mut Document, stage: &str, hook: &Hook) -> Result<()> {
    let list = list(document, stage)?;
    let hook = to_value(hook)?;
    if !list.contains(&hook) {
        list.push(hook);
    }
    Ok(())
}

fn to_value(hook: &Hook) -> Result<Value> {
    serde_json::to_value(hook).context(|| "write a hook as JSON")
}

fn list<'a>(document: &'a mut Document, stage: &str) -> Result<&'a mut Vec<Value>> {
    let hooks = object(&mut document.root, "hooks", "hooks")?;
    array(hooks, stage, &format!("hooks.{stage}"))
}
