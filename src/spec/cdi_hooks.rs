//! The hooks by which a CDI device marks a container in config.json: that of a claim of Kubernetes, and that of a
//! request. No image can put a hook there. runmig reads them, does their work itself, and takes them out.

use super::document::Document;
use super::hooks;
use super::oci::is_same;
use runmig_lease::cdi::STAGES;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::programs::{CLAIM, HOOK, REQUEST, REQUEST_FILE};
use runmig_lease::request::{self, DeviceRequest};
use runmig_lease::store::ClaimName;
use serde_json::Value;
use std::error::Error as StdError;

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
            _ if mark.is_of_edit() => match hooks::asked(&mark.args) {
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
        hooks::STAGES.iter().any(|ours| is_same(&self.stage, ours))
            && hooks::is_ours(self.args.iter().map(String::as_str))
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
pub fn take_out(document: &mut Document) -> Result<Vec<DeviceRequest>> {
    let is_meant = |hook: &Value| {
        let first = hook.get("args").and_then(|args| args.get(0));
        let mut texts = [hook.get("path"), first].into_iter().flatten();
        texts.any(|text| text.as_str().is_some_and(is_named))
    };
    let removed = hooks::remove(document, &STAGES, is_meant)?;
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
        let kept = [HOOK, "--lease", "a", hooks::ASKED_FLAG, "gpu=1"];
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
        take_out(&mut document).unwrap();
        // A list that was empty before is none of runmig's business.
        assert_eq!(
            document.root["hooks"],
            json!({"poststop": [other], "prestart": []})
        );
    }
}
