//! The hooks by which a CDI device marks a container in config.json: that of a claim of Kubernetes, and that of a
//! request. No image can put a hook there. runmig reads them, does their work itself, and takes them out.

use super::document::Document;
use super::hooks;
use runmig_lease::cdi::STAGES;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::programs::{CLAIM, REQUEST, REQUEST_FILE};
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The container has the device of a claim.
    Claim(ClaimName),
    Request(DeviceRequest),
    /// A claim's hook at the end of the container.
    Nothing,
}

impl Mark {
    /// Returns whether the hook has a mark's name, whatever else it is.
    pub fn is_named(&self) -> bool {
        is_named(&self.path) || self.args.first().is_some_and(|first| is_named(first))
    }

    /// Returns whether the hook is that of an edit of runmig.
    pub fn is_of_edit(&self) -> bool {
        hooks::is_ours(self.args.iter().map(String::as_str))
    }

    /// Returns the requests that the hook of an edit keeps.
    pub fn kept(&self) -> Vec<DeviceRequest> {
        hooks::asked(&self.args)
    }

    /// Returns what the hook means, if its path is that of the installed program.
    ///
    /// # Errors
    /// No CDI file of runmig has such a hook.
    pub fn meaning(&self) -> Result<Meaning> {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let claim = |uid: &str, device: &str| ClaimName {
            uid: uid.to_owned(),
            device: device.to_owned(),
        };
        let meaning = match (self.stage.as_str(), &args[..]) {
            _ if self.is_odd => None,
            ("createRuntime", [CLAIM, "attach", "--claim", uid, "--device", device]) => {
                Some(Meaning::Claim(claim(uid, device)))
            }
            ("poststop", [CLAIM, "detach", "--claim", _, "--device", _]) => Some(Meaning::Nothing),
            ("createRuntime", [REQUEST, asked]) => {
                request::device_request(asked).map(Meaning::Request)
            }
            _ => None,
        };
        meaning.ok_or_else(|| self.refused("no CDI file of runmig has such a hook"))
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

    #[test]
    fn accepts_exact_marks_alone() {
        let mark = |stage: &str, args: &[&str]| Mark {
            stage: stage.to_owned(),
            path: "/x".to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            is_odd: false,
        };
        let asks = mark("createRuntime", &[REQUEST, "share=1/4"]);
        let Ok(Meaning::Request(device)) = asks.meaning() else {
            panic!("{asks:?}");
        };
        assert_eq!(device.to_string(), "runmig.dev/share=1of4");
        let claim = [CLAIM, "attach", "--claim", "u", "--device", "d"];
        assert!(matches!(
            mark("createRuntime", &claim).meaning(),
            Ok(Meaning::Claim(_))
        ));
        let odd = Mark {
            is_odd: true,
            ..asks
        };
        let why = odd.meaning().unwrap_err().line();
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
            assert!(mark(stage, args).meaning().is_err(), "{stage} {args:?}");
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
