//! Reads the arguments as the low-level runtime reads them, to find a create, its container and its bundle. A
//! bundle that runmig misses is a container without its slice. So each family has its own reader.
//!
//! A reader has three answers. The first is a create, run, restore or delete. The second is surely another
//! call (`Verb::Other`), which the runtime answers with its own help or error. The third is an error: a
//! container may come up, and the reader cannot tell how.

mod crun;
mod given;
mod runc;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use runmig_lease::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// runc, with Go's flags. nvidia-container-runtime hands its own arguments on to runc.
    Runc,
    /// crun, with GNU argp.
    Crun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// The arguments of a call. Paths stay as given, and relative ones start at `Call::stands_in`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub root: Option<PathBuf>,
    /// The log file for errors. crun's `syslog:` and `journald:` are not files.
    pub log: Option<PathBuf>,
    pub log_format: Option<LogFormat>,
    pub debug: bool,
    pub systemd_cgroup: bool,
    /// Set by crun's `--cgroup-manager=disabled`: the kernel then enforces no device rule.
    pub no_cgroup: bool,
    pub verb: Verb,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Create(Create),
    Run(Run),
    Restore {
        id: OsString,
        bundle: Option<PathBuf>,
    },
    Delete {
        id: OsString,
        force: bool,
    },
    /// An update on crun. runc's update leaves the devices as they are.
    Update(Update),
    Features,
    /// A call that neither makes nor deletes a container.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    pub id: OsString,
    /// Relative to the caller's working directory, which is also the default.
    pub bundle: Option<PathBuf>,
    /// crun's `--config`, relative to the caller's working directory and not to the bundle. The default is
    /// `config.json` in the bundle.
    pub config: Option<PathBuf>,
    pub pid_file: Option<PathBuf>,
    pub preserve_fds: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub create: Create,
    pub detach: bool,
    pub keep: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub id: OsString,
    /// The file of the resources, relative to the caller's working directory. `-` is standard input.
    pub resources: PathBuf,
    /// The index of the argument before which runmig can add an option.
    pub options_end: usize,
}

/// Reads the arguments that follow the program's name.
pub fn parse(family: Family, args: &[OsString]) -> Result<Call> {
    match family {
        Family::Runc => runc::parse(args),
        Family::Crun => crun::parse(args),
    }
}

impl Family {
    /// Returns the family by the base name of a canonical path. A `runc` may be a link to crun.
    pub fn of(canonical: &Path) -> Family {
        let name = canonical.file_name().unwrap_or_default().as_bytes();
        if name == b"crun" || name == b"krun" || name.starts_with(b"crun-") {
            Family::Crun
        } else {
            Family::Runc
        }
    }

    /// Returns the directory of containers' states without a `--root`. runc honours `XDG_RUNTIME_DIR` only if
    /// it is not the host's root, and crun always honours it.
    pub fn default_root(
        self,
        env: &dyn Fn(&str) -> Option<OsString>,
        euid: u32,
        in_user_namespace: bool,
    ) -> PathBuf {
        let (name, honoured) = match self {
            Family::Crun => ("crun", true),
            Family::Runc if euid != 0 => ("runc", true),
            Family::Runc => {
                let root = env("USER").is_some_and(|u| u == "root");
                ("runc", in_user_namespace && !root)
            }
        };
        let runtime_dir = env("XDG_RUNTIME_DIR").filter(|d| honoured && !d.is_empty());
        Path::new(runtime_dir.as_deref().unwrap_or(OsStr::new("/run"))).join(name)
    }
}

impl Call {
    /// Returns the directory at which relative `root`, `log` and `pid_file` start. crun enters the bundle
    /// before it looks at them, and runc resolves them before.
    pub fn stands_in(&self, family: Family, cwd: &Path) -> PathBuf {
        let bundle = match &self.verb {
            Verb::Create(create) | Verb::Run(Run { create, .. }) => &create.bundle,
            Verb::Restore { bundle, .. } => bundle,
            Verb::Delete { .. } | Verb::Update(_) | Verb::Features | Verb::Other => &None,
        };
        match (family, bundle) {
            (Family::Crun, Some(bundle)) => cwd.join(bundle),
            _ => cwd.to_owned(),
        }
    }

    fn other() -> Call {
        Call {
            root: None,
            log: None,
            log_format: None,
            debug: false,
            systemd_cgroup: false,
            no_cgroup: false,
            verb: Verb::Other,
        }
    }
}

/// The commands that make or delete a container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Create,
    Run,
    Restore,
    Delete,
}

impl Command {
    /// Returns the command of this name. Both families take only the full name.
    fn of(word: &OsStr) -> Option<Command> {
        match word.as_bytes() {
            b"create" => Some(Command::Create),
            b"run" => Some(Command::Run),
            b"restore" => Some(Command::Restore),
            b"delete" => Some(Command::Delete),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Command::Create => "create",
            Command::Run => "run",
            Command::Restore => "restore",
            Command::Delete => "delete",
        }
    }

    fn makes_a_container(self) -> bool {
        self != Command::Delete
    }
}

/// Returns an error if a word of the rest may be a create. The reader could not follow the global options, so
/// any word could be the command.
fn lost(at: &OsStr, why: &str, rest: &[OsString]) -> Result<Call> {
    let may_create = |word: &OsString| Command::of(word).is_some_and(Command::makes_a_container);
    if !rest.iter().any(may_create) {
        return Ok(Call::other());
    }
    Err(
        Error::new(format!("cannot find the command: {why} {}", at.display()))
            .hint("write it as --option=value, or call the low-level runtime directly"),
    )
}
