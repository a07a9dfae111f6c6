//! Edits hooks: runmig's own, first in their lists and recognised by their arguments, the hooks of the driver's files, and
//! those by which a CDI device marks a container: that of a claim of Kubernetes, and that of a request. No image can put such a
//! hook there. runmig reads them, does their work itself, and takes them out.

use super::document::{Document, array, get_mut, object, part, wrong_kind};
use super::oci::is_same;
use oci_spec::runtime::HookBuilder;
use runmig_lease::cdi;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::model::LeaseId;
use runmig_lease::programs::{CLAIM, HOOK, REQUEST, REQUEST_FILE};
use runmig_lease::request::{self, DeviceRequest};
use runmig_lease::store::ClaimName;
use serde_json::Value;
use std::error::Error as StdError;
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

/// The environment of runmig's own hook.
const OWN_ENV: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

/// Seconds, long enough for a slow driver. An engine waits for its delete, and the delete waits for the hook.
pub const HOOK_TIMEOUT_S: u32 = 30;

/// The poststop hook that releases the slices, and its companion in createRuntime.
#[derive(Clone, Debug)]
pub struct HookCommand {
    /// The absolute path of the hook.
    pub path: PathBuf,
    /// The random lease ids. `--lease ID` for each stands first among the arguments.
    pub leases: Vec<LeaseId>,
    /// The arguments after the leases.
    pub args: Vec<String>,
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
    let ours = |flag: Option<&str>| {
        let mut args = vec![HOOK.to_owned()];
        args.extend(flag.map(str::to_owned));
        for lease in &command.leases {
            args.extend([LEASE_FLAG.to_owned(), lease.to_string()]);
        }
        args.extend_from_slice(&command.args);
        written(&cdi::Hook {
            hook_name: String::new(),
            path: command.path.clone(),
            args,
            env: vec![OWN_ENV.to_owned()],
            timeout: Some(HOOK_TIMEOUT_S.into()),
        })
    };
    list(document, "poststop")?.insert(0, ours(None)?);
    if command.limits {
        list(document, "createRuntime")?.insert(0, ours(Some(LIMIT_FLAG))?);
    }
    Ok(())
}

/// Removes runmig's hooks with any lease, and the objects that only they needed.
pub fn take_out(document: &mut Document) -> Result<()> {
    let is_meant = |hook: &Value| {
        let args = hook.get("args").and_then(Value::as_array);
        is_ours(args.into_iter().flatten().map_while(Value::as_str))
    };
    remove(document, &STAGES, is_meant).map(drop)
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

/// Appends a hook to its list if it is missing there.
pub fn append(document: &mut Document, hook: &cdi::Hook) -> Result<()> {
    let list = list(document, &hook.hook_name)?;
    let hook = written(hook)?;
    if !list.contains(&hook) {
        list.push(hook);
    }
    Ok(())
}

/// Returns a hook as config.json has it: without the name of its list, and always with an environment.
fn written(hook: &cdi::Hook) -> Result<Value> {
    let env = match hook.env.as_slice() {
        [] => vec![PLAIN_ENV.to_owned()],
        env => env.to_vec(),
    };
    let made = HookBuilder::default().path(&hook.path).env(env).build();
    part(made.map(|mut made| {
        made.set_args((!hook.args.is_empty()).then(|| hook.args.clone()));
        made.set_timeout(hook.timeout);
        made
    }))
}

fn list<'a>(document: &'a mut Document, stage: &str) -> Result<&'a mut Vec<Value>> {
    let hooks = object(&mut document.root, "hooks", "hooks")?;
    array(hooks, stage, &format!("hooks.{stage}"))
}

const NAMES: [&str; 3] = [CLAIM, REQUEST, REQUEST_FILE];

/// A hook with the name of a mark, as any reader of config.json could see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The list with the hook.
    pub stage: String,
    pub path: String,
    pub args: Vec<String>,
    /// Says whether there is more than one path, one list of arguments and a timeout, each spelled plainly.
    pub is_odd: bool,
}

/// What the marks of a container ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Marked {
    /// The devices of claims of Kubernetes.
    pub claims: Vec<ClaimName>,
    /// The devices that ask, each once, since engines repeat one.
    pub devices: Vec<DeviceRequest>,
}

impl Marked {
    /// Adds what a hook asks. Returns the program at whose path alone the hook counts; none for an edit's that keeps nothing.
    ///
    /// # Errors
    /// No CDI file of runmig has such a hook.
    pub fn take(&mut self, mark: &Mark) -> Result<Option<&'static str>> {
        let args: Vec<&str> = mark.args.iter().map(String::as_str).collect();
        let (program, asked) = match (mark.stage.as_str(), &args[..]) {
            _ if mark.is_of_edit() => match asked(&mark.args) {
                kept if kept.is_empty() => return Ok(None),
                kept => (HOOK, Some(kept)),
            },
            _ if mark.is_odd => (HOOK, None),
            ("createRuntime", [CLAIM, "attach", "--claim", uid, "--device", device]) => {
                let (uid, device) = ((*uid).to_owned(), (*device).to_owned());
                self.claims.push(ClaimName { uid, device });
                (CLAIM, Some(Vec::new()))
            }
            ("poststop", [CLAIM, "detach", "--claim", _, "--device", _]) => {
                (CLAIM, Some(Vec::new()))
            }
            ("createRuntime", [REQUEST, asked]) => {
                let asked = request::device_request(asked);
                (REQUEST_FILE, asked.map(|one| vec![one]))
            }
            _ => (HOOK, None),
        };
        let asked = asked.ok_or_else(|| mark.refused("no CDI file of runmig has such a hook"))?;
        for device in asked {
            if !self.devices.contains(&device) {
                self.devices.push(device);
            }
        }
        Ok(Some(program))
    }
}

impl Mark {
    /// Returns whether the hook has a mark's name, whatever else it is.
    pub fn is_named(&self) -> bool {
        is_named(&self.path) || self.args.first().is_some_and(|first| is_named(first))
    }

    /// Returns whether the hook is that of an edit of runmig, which keeps what CDI devices asked.
    pub fn is_of_edit(&self) -> bool {
        STAGES.iter().any(|ours| is_same(&self.stage, ours))
            && is_ours(self.args.iter().map(String::as_str))
    }

    /// Returns the error for a hook that counts for nothing.
    pub fn refused(&self, why: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        let words: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let text: String = words.join(" ").chars().take(160).collect();
        Error::new(format!(
            "cannot accept hook {} ({}) in {} of config.json",
            printable(&self.path),
            printable(&text),
            printable(&self.stage),
        ))
        .hint("remove the hook from the CDI file or the folder of hooks that has it; migctl configure cdi writes runmig's files anew")
        .caused_by(why)
    }
}

fn is_named(text: &str) -> bool {
    NAMES.iter().any(|name| text.ends_with(name))
}

/// Removes the hooks with a mark's name from every list, and returns the requests of those that ask.
pub fn take_out_marks(document: &mut Document) -> Result<Vec<DeviceRequest>> {
    let is_meant = |hook: &Value| {
        let first = hook.get("args").and_then(|args| args.get(0));
        let mut texts = [hook.get("path"), first].into_iter().flatten();
        texts.any(|text| text.as_str().is_some_and(is_named))
    };
    let removed = remove(document, &cdi::STAGES, is_meant)?;
    let asked = |hook: &Value| request::device_request(hook.pointer("/args/1")?.as_str()?);
    Ok(removed.iter().filter_map(asked).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the program of a mark, and how many devices it asks for.
    fn marked_by(mark: &Mark) -> Result<(Option<&'static str>, usize)> {
        let mut marked = Marked::default();
        Ok((marked.take(mark)?, marked.devices.len()))
    }

    #[test]
    fn accepts_exact_marks_alone() {
        let mark = |stage: &str, args: &[&str]| Mark {
            stage: stage.to_owned(),
            path: "/x".to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            is_odd: false,
        };
        let asks = mark("createRuntime", &[REQUEST, "share=1/4"]);
        let mut marked = Marked::default();
        for _ in 0..2 {
            assert_eq!(marked.take(&asks).unwrap(), Some(REQUEST_FILE));
        }
        assert_eq!(marked.devices.len(), 1);
        assert_eq!(marked.devices[0].to_string(), "runmig.dev/share=1of4");
        let claim = [CLAIM, "attach", "--claim", "u", "--device", "d"];
        let attach = mark("createRuntime", &claim);
        assert_eq!(marked.take(&attach).unwrap(), Some(CLAIM));
        assert_eq!(marked.claims[0].uid, "u");
        let edit = |args| marked_by(&mark("poststop", args));
        assert_eq!(edit(&[HOOK, "--lease", "a"]).unwrap(), (None, 0));
        let kept = [HOOK, "--lease", "a", ASKED_FLAG, "gpu=1"];
        assert_eq!(edit(&kept).unwrap(), (Some(HOOK), 1));
        let odd = Mark {
            is_odd: true,
            ..asks
        };
        let why = marked_by(&odd).unwrap_err().line();
        let starts =
            "cannot accept hook /x (runmig-request share=1/4) in createRuntime of config.json: ";
        assert!(why.starts_with(starts), "{why}");
        for (stage, args) in [
            ("poststop", &[REQUEST, "share=1/4"][..]),
            ("createContainer", &[REQUEST, "share=1/4"]),
            ("createruntime", &[REQUEST, "share=1/4"]),
            ("createRuntime", &[REQUEST]),
            ("createRuntime", &[REQUEST, "share=1/4", "wait=1m"]),
            ("createRuntime", &[REQUEST, "share"]),
            ("createRuntime", &[REQUEST, "share="]),
            ("createRuntime", &[REQUEST, "share=none"]),
            ("createRuntime", &[REQUEST, "compute=2"]),
            ("createRuntime", &["x/runmig-request", "share=1/4"]),
            ("createRuntime", &claim[..4]),
            ("poststop", &claim),
        ] {
            assert!(marked_by(&mark(stage, args)).is_err(), "{stage} {args:?}");
        }
    }

    #[test]
    fn takes_out_marks_alone() {
        let hook = |path: &str, args: &[&str]| json!({"path": path, "args": args});
        let other = hook("/opt/claim", &["claim", "runmig-claim"]);
        let ours = [
            hook("/opt/runmig-claim", &[CLAIM, "attach"]),
            hook("/opt/x", &[REQUEST, "slice=1g.10gb"]),
            hook("/opt/runmig-request-wants-runtime-runmig", &[]),
        ];
        let config = json!({"hooks": {
            "createRuntime": ours, "poststop": [ours[0], other], "startContainer": [ours[1]], "prestart": [],
        }});
        let mut document = Document::parse(config.to_string().as_bytes()).unwrap();
        take_out_marks(&mut document).unwrap();
        // A list that was empty before is none of runmig's business.
        assert_eq!(
            document.root["hooks"],
            json!({"poststop": [other], "prestart": []})
        );
    }
}
