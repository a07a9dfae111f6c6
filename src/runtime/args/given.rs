//! The options as given, in the syntax of either family, and their meaning.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::{Call, Command, Create, LogFormat, Run, Verb};
use runmig_lease::error::{Error, Result};

/// The meaning of an option. `Skip` stands for all options that do not matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Root,
    Log,
    LogFormat,
    LogLevel,
    Debug,
    SystemdCgroup,
    CgroupManager,
    Rootless,
    /// Help, usage or version: the low-level runtime answers, and ends.
    Help,
    Version,
    Bundle,
    Config,
    PidFile,
    PreserveFds,
    Detach,
    Keep,
    Force,
    Regex,
    Resources,
    Skip,
}

#[derive(Clone, Default)]
pub(super) struct Given<'a> {
    pub root: Option<&'a OsStr>,
    pub log: Option<&'a OsStr>,
    log_format: Option<&'a OsStr>,
    debug: bool,
    systemd_cgroup: bool,
    no_cgroup: bool,
    pub rootless: bool,
    pub help: bool,
    pub version: bool,
    pub bundle: Option<&'a OsStr>,
    config: Option<&'a OsStr>,
    pid_file: Option<&'a OsStr>,
    preserve_fds: Option<&'a OsStr>,
    detach: bool,
    keep: bool,
    force: bool,
    regex: bool,
    pub resources: Option<&'a OsStr>,
}

impl<'a> Given<'a> {
    /// Sets the value of an option. In both families the last value wins.
    pub fn value(&mut self, key: Key, value: &'a OsStr) {
        match key {
            Key::Root => self.root = Some(value),
            Key::Log => self.log = Some(value),
            Key::LogFormat => self.log_format = Some(value),
            Key::LogLevel => self.debug = value == "debug",
            Key::CgroupManager => {
                self.systemd_cgroup = value == "systemd";
                self.no_cgroup = value == "disabled";
            }
            Key::Rootless => self.rootless = true,
            Key::Bundle => self.bundle = Some(value),
            Key::Config => self.config = Some(value),
            Key::PidFile => self.pid_file = Some(value),
            Key::PreserveFds => self.preserve_fds = Some(value),
            Key::Resources => self.resources = Some(value),
            _ => {}
        }
    }

    pub fn switch(&mut self, key: Key, on: bool) {
        match key {
            Key::Debug => self.debug = on,
            Key::SystemdCgroup => self.systemd_cgroup = on,
            Key::Help => self.help = on,
            Key::Version => self.version = on,
            Key::Detach => self.detach = on,
            Key::Keep => self.keep = on,
            Key::Force => self.force = on,
            Key::Regex => self.regex = on,
            _ => {}
        }
    }

    /// Returns the call with this verb and the global options, such as the log and the root.
    pub fn call(&self, verb: Verb) -> Call {
        Call {
            root: self.root.map(PathBuf::from),
            log: nonempty(self.log),
            log_format: match self.log_format.map(OsStr::as_bytes) {
                Some(b"json") => Some(LogFormat::Json),
                Some(b"text") => Some(LogFormat::Text),
                // runc takes an empty format for text; both families refuse any other format themselves
                _ => None,
            },
            debug: self.debug,
            systemd_cgroup: self.systemd_cgroup,
            no_cgroup: self.no_cgroup,
            verb,
        }
    }

    /// Returns the call of a command with its one container.
    pub fn command(
        &self,
        command: Command,
        id: &OsStr,
        number: fn(&OsStr) -> Option<i64>,
    ) -> Result<Call> {
        if command == Command::Delete {
            // crun's --regex deletes many containers; their own hooks release the slices
            let verb = if self.regex || self.unclear_root().is_some() {
                Verb::Other
            } else {
                let (id, force) = (id.to_owned(), self.force);
                Verb::Delete { id, force }
            };
            return Ok(self.call(verb));
        }
        if let Some(unclear) = self.unclear_root() {
            return Err(unclear);
        }
        let id: OsString = id.to_owned();
        if id.is_empty() {
            return Err(refused(command, "the container's id is empty"));
        }
        let bundle = nonempty(self.bundle);
        if command == Command::Restore {
            return Ok(self.call(Verb::Restore { id, bundle }));
        }
        let preserve_fds = match self.preserve_fds {
            None => None,
            Some(n) => match number(n) {
                Some(n) => Some(n.clamp(0, u32::MAX.into()) as u32),
                None => {
                    let why = format!("--preserve-fds {}: not a number", n.display());
                    return Err(refused(command, &why));
                }
            },
        };
        let create = Create {
            id,
            bundle,
            config: self.config.map(PathBuf::from),
            pid_file: nonempty(self.pid_file),
            preserve_fds,
        };
        Ok(self.call(match command {
            Command::Run => Verb::Run(Run {
                create,
                detach: self.detach,
                keep: self.keep,
            }),
            _ => Verb::Create(create),
        }))
    }

    /// Returns the error for a root that versions read differently. For an empty root runc 1.1 takes the
    /// bundle, and runc 1.5 the working directory. crun 1.8 takes `--rootless` for `--root`, and later
    /// versions skip it.
    pub fn unclear_root(&self) -> Option<Error> {
        let what = match self.root {
            Some(root) if root.is_empty() => "--root is empty",
            _ if self.rootless => "--rootless: versions of crun differ on what it means",
            _ => return None,
        };
        Some(Error::new(what).hint("name the state directory with --root=DIR"))
    }
}

pub(super) fn refused(command: Command, why: &str) -> Error {
    Error::new(format!("{}: {why}", command.name())).hint(
        "runmig must know id and bundle; correct the arguments, \
         or call the low-level runtime directly",
    )
}

/// Returns `None` for an empty path, as both families do.
fn nonempty(path: Option<&OsStr>) -> Option<PathBuf> {
    path.filter(|p| !p.is_empty()).map(PathBuf::from)
}
