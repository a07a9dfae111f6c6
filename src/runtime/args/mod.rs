//! Only the forms that engines use; the low-level runtimes' own grammars come next.
use crate::error::{Error, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Runc,
    Crun,
}
impl Family {
    pub fn of(p: &Path) -> Family {
        if p.to_string_lossy().contains("crun") {
            Family::Crun
        } else {
            Family::Runc
        }
    }
}
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    Text,
    Json,
}
pub struct Call {
    pub root: Option<PathBuf>,
    pub log: Option<PathBuf>,
    pub log_format: Option<LogFormat>,
    pub verb: Verb,
}
pub enum Verb {
    Create(Create),
    Run(Run),
    Restore(Restore),
    Delete(Delete),
    Other,
}
pub struct Create {
    pub id: String,
    pub bundle: Option<PathBuf>,
}
pub struct Run {
    pub common: Create,
    pub detach: bool,
}
pub struct Restore {
    pub id: String,
    pub bundle: Option<PathBuf>,
}
pub struct Delete {
    pub id: String,
    pub force: bool,
}
pub fn default_root(f: Family, _: &dyn Fn(&str) -> Option<OsString>, _: bool) -> PathBuf {
    if f == Family::Crun {
        "/run/crun".into()
    } else {
        "/run/runc".into()
    }
}
pub fn parse(_f: Family, args: &[OsString]) -> Result<Call> {
    let mut call = Call {
        root: None,
        log: None,
        log_format: None,
        verb: Verb::Other,
    };
    let mut it = args.iter().map(|a| a.to_string_lossy().into_owned());
    let mut verb = None;
    let mut id = None;
    let mut bundle = None;
    let mut detach = false;
    let mut force = false;
    while let Some(a) = it.next() {
        let (k, v) = match a.split_once('=') {
            Some((k, v)) => (k.to_owned(), Some(v.to_owned())),
            None => (a.clone(), None),
        };
        match k.as_str() {
            "--root" => call.root = v.or_else(|| it.next()).map(Into::into),
            "--log" => call.log = v.or_else(|| it.next()).map(Into::into),
            "--log-format" => {
                call.log_format = Some(if v.or_else(|| it.next()).as_deref() == Some("json") {
                    LogFormat::Json
                } else {
                    LogFormat::Text
                })
            }
            "--bundle" | "-b" => bundle = v.or_else(|| it.next()).map(PathBuf::from),
            "--pid-file" | "--console-socket" | "--preserve-fds" => {
                let _ = v.or_else(|| it.next());
            }
            "--detach" | "-d" => detach = true,
            "--force" | "-f" => force = true,
            _ if a.starts_with('-') => {}
            _ if verb.is_none() => verb = Some(a),
            _ if id.is_none() => id = Some(a),
            _ => {}
        }
    }
    let id2 = || id.clone().ok_or_else(|| Error::new("no id"));
    call.verb = match verb.as_deref() {
        Some("create") => Verb::Create(Create { id: id2()?, bundle }),
        Some("run") => Verb::Run(Run {
            common: Create { id: id2()?, bundle },
            detach,
        }),
        Some("restore") => Verb::Restore(Restore { id: id2()?, bundle }),
        Some("delete") => Verb::Delete(Delete { id: id2()?, force }),
        _ => Verb::Other,
    };
    Ok(call)
}
