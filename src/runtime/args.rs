//! Reads the arguments of a call in the one form that engines write: each option in its long form, or as one letter,
//! before the container's id. runc and crun read more than that, each in its own way. What is not in this form and may
//! make a container is `Verb::Unclear`: it is refused if one of its words names a bundle that asks, since a bundle that
//! runmig misses is a container without its slice.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// runc, with Go's flags. nvidia-container-runtime hands its own arguments on to runc.
    Runc,
    /// crun, with GNU argp.
    Crun,
}

/// The arguments of a call. Paths stay as given, and relative ones start at `Call::stands_in`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub root: Option<PathBuf>,
    pub log: Option<Log>,
    pub systemd_cgroup: bool,
    /// Set by crun's `--cgroup-manager=disabled`: the kernel then enforces no device rule.
    pub no_cgroup: bool,
    pub verb: Verb,
}

/// The log file for errors. crun's `syslog:` and `journald:` are not files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub file: PathBuf,
    /// Says whether each line is a JSON object.
    pub is_json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Make(Create),
    /// A delete of the container with this id.
    Delete(OsString),
    /// A checkpoint that ends its container, one of these words.
    Checkpoint(Vec<OsString>),
    /// An update on crun. runc's update leaves the devices as they are.
    Update(Update),
    Features,
    /// A call that may make or update a container, in words that runmig cannot read.
    Unclear(Unclear),
    /// A call that runmig leaves to the low-level runtime.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    pub how: How,
    pub id: OsString,
    /// Relative to the caller's working directory, which is also the default.
    pub bundle: Option<PathBuf>,
    /// crun's `--config`, relative to the caller's working directory and not to the bundle. The default is
    /// `config.json` in the bundle.
    pub config: Option<PathBuf>,
}

/// The command that makes a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Create,
    Run { detach: bool },
    Restore,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub id: OsString,
    /// The file of the resources, relative to the caller's working directory. `-` is standard input.
    pub resources: PathBuf,
    /// The index of the argument before which runmig can add an option.
    pub options_end: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclear {
    pub command: &'static str,
    pub why: String,
    /// The arguments in which the container or its bundle is named.
    pub words: Vec<OsString>,
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
    /// Returns the directory at which relative `root` and `log` start. crun enters the bundle
    /// before it looks at them, and runc resolves them before.
    pub fn stands_in(&self, family: Family, cwd: &Path) -> PathBuf {
        match &self.verb {
            Verb::Make(Create {
                bundle: Some(bundle),
                ..
            }) if family == Family::Crun => cwd.join(bundle),
            _ => cwd.to_owned(),
        }
    }
}

/// Reads the arguments that follow the program's name.
pub fn parse(family: Family, args: &[OsString]) -> Call {
    let mut given = Given::default();
    let (at, stop) = given.read(family, GLOBAL, args);
    let rest = &args[at..];
    let verb = match stop {
        Stop::Answered => Verb::Other,
        // Any later word may be the command.
        Stop::Dashes | Stop::Unreadable(_) => {
            let why = match stop {
                Stop::Unreadable(why) => why,
                _ => "unknown option --".to_owned(),
            };
            let commands = || rest.iter().filter_map(|word| command(word));
            let makes = commands().find(|name| matches!(*name, "create" | "run" | "restore"));
            let updates = || commands().find(|name| *name == "update" && family == Family::Crun);
            match makes.or_else(updates) {
                Some(command) => unclear(command, why, args),
                None => Verb::Other,
            }
        }
        Stop::Word => match rest.first().and_then(|word| command(word)) {
            Some("features") => Verb::Features,
            Some("update") if family == Family::Runc => Verb::Other,
            Some("checkpoint") if leaves_running(&rest[1..]) => Verb::Other,
            Some("checkpoint") => Verb::Checkpoint(rest[1..].to_vec()),
            Some(command) if rest.len() > 1 => given.command(family, command, args, at + 1),
            _ => Verb::Other,
        },
    };
    given.call(family, verb)
}

/// Returns the name of a command that runmig reads. Both families take only the full name.
fn command(word: &OsStr) -> Option<&'static str> {
    [
        "create",
        "run",
        "restore",
        "delete",
        "checkpoint",
        "update",
        "features",
    ]
    .into_iter()
    .find(|name| word == *name)
}

/// Returns whether the options of a checkpoint let the container go on. Of an option that stands there twice the last counts.
/// crun takes abbreviations.
fn leaves_running(words: &[OsString]) -> bool {
    let (mut leave, mut pre_dump) = (false, false);
    let mut words = words.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix('-') else {
            continue;
        };
        let option = option.strip_prefix('-').unwrap_or(option);
        let split = option.split_once('=');
        let (name, value) = split.map_or((option, None), |(name, value)| (name, Some(value)));
        let is_set = matches!(
            value,
            None | Some("1" | "t" | "T" | "true" | "TRUE" | "True")
        );
        match name {
            "" => break,
            _ if name == "R" || name.starts_with("leave") => leave = is_set,
            _ if name.starts_with("pre-d") => pre_dump = is_set,
            // The next word is its value.
            _ if value.is_none() && CHECKPOINT_VALUES.iter().any(|its| its.starts_with(name)) => {
                words.next();
            }
            _ => {}
        }
    }
    leave || pre_dump
}

/// The options of a checkpoint that have a value, of both families.
const CHECKPOINT_VALUES: [&str; 8] = [
    "image-path",
    "work-path",
    "parent-path",
    "page-server",
    "status-fd",
    "manage-cgroups-mode",
    "network-lock",
    "lsm-profile",
];

fn unclear(command: &'static str, why: String, words: &[OsString]) -> Verb {
    let words = words.to_vec();
    Verb::Unclear(Unclear {
        command,
        why,
        words,
    })
}

/// An option: its long name, its letter or `-`, and whether it has a value.
type Known = (&'static str, char, bool);

/// The global options of both families. A low-level runtime refuses those of the other.
const GLOBAL: &[Known] = &[
    ("root", '-', true),
    ("log", '-', true),
    ("log-format", '-', true),
    ("log-level", '-', true),
    ("cgroup-manager", '-', true),
    ("rootless", '-', true),
    ("systemd-cgroup", '-', false),
    ("debug", '-', false),
    ("help", 'h', false),
    ("version", 'v', false),
];

/// The options of create, run and restore together. A low-level runtime refuses those that its command does not have.
const MAKE: &[Known] = &[
    ("bundle", 'b', true),
    ("config", 'f', true),
    ("pid-file", '-', true),
    ("console-socket", '-', true),
    ("pidfd-socket", '-', true),
    ("preserve-fds", '-', true),
    ("no-pivot", '-', false),
    ("no-new-keyring", '-', false),
    ("no-subreaper", '-', false),
    ("detach", 'd', false),
    ("keep", '-', false),
    ("image-path", '-', true),
    ("work-path", '-', true),
    ("manage-cgroups-mode", '-', true),
    ("empty-ns", '-', true),
    ("lsm-profile", '-', true),
    ("lsm-mount-context", '-', true),
    ("network-lock", '-', true),
    ("tcp-established", '-', false),
    ("tcp-close", '-', false),
    ("ext-unix-sk", '-', false),
    ("shell-job", '-', false),
    ("file-locks", '-', false),
    ("auto-dedup", '-', false),
    ("lazy-pages", '-', false),
    ("help", 'h', false),
];

const DELETE: &[Known] = &[("force", 'f', false), ("help", 'h', false)];

const UPDATE: &[Known] = &[
    ("resources", 'r', true),
    ("blkio-weight", '-', true),
    ("cpu-period", '-', true),
    ("cpu-quota", '-', true),
    ("cpu-rt-period", '-', true),
    ("cpu-rt-runtime", '-', true),
    ("cpu-share", '-', true),
    ("cpuset-cpus", '-', true),
    ("cpuset-mems", '-', true),
    ("kernel-memory", '-', true),
    ("kernel-memory-tcp", '-', true),
    ("memory", '-', true),
    ("memory-reservation", '-', true),
    ("memory-swap", '-', true),
    ("pids-limit", '-', true),
    ("l3-cache-schema", '-', true),
    ("mem-bw-schema", '-', true),
    ("help", 'h', false),
];

/// The options as given, by long name. In both families the last value wins. A switch has an empty value.
#[derive(Default)]
struct Given<'a>(Vec<(&'static str, &'a OsStr)>);

enum Stop {
    /// At an argument that is not an option, or at the end.
    Word,
    /// By help or version: the low-level runtime answers, and ends.
    Answered,
    /// At `--`.
    Dashes,
    Unreadable(String),
}

impl<'a> Given<'a> {
    /// Reads options up to the first other argument. Returns its index, and why it stops there.
    fn read(&mut self, family: Family, known: &[Known], args: &'a [OsString]) -> (usize, Stop) {
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let bytes = arg.as_bytes();
            if bytes == b"--" {
                return (at, Stop::Dashes);
            }
            let unreadable = |why: &str| Stop::Unreadable(format!("{why} {}", arg.display()));
            let (name, value) = match bytes.iter().position(|b| *b == b'=') {
                Some(end) => (&bytes[..end], Some(OsStr::from_bytes(&bytes[end + 1..]))),
                None => (bytes, None),
            };
            let found = match name {
                [b'-', b'-', long @ ..] => known.iter().find(|(name, ..)| name.as_bytes() == long),
                [b'-', letter] if value.is_none() => known
                    .iter()
                    .find(|(_, short, _)| *short == char::from(*letter)),
                [b'-', ..] => None,
                _ => return (at, Stop::Word),
            };
            let Some(&(long, _, has_value)) = found else {
                // A newer runtime's global option, in one argument whatever it means. crun takes an abbreviation.
                let abbreviates = || {
                    known
                        .iter()
                        .any(|(long, ..)| long.as_bytes().starts_with(&name[2..]))
                        || name[2] == b'-'
                };
                if known == GLOBAL && value.is_some() && name.starts_with(b"--") && !abbreviates() {
                    at += 1;
                    continue;
                }
                return (at, unreadable("unknown option"));
            };
            // Versions of runc differ on a value that looks like an option.
            let is_value = |next: &&OsString| {
                !next.as_bytes().starts_with(b"-") || (long == "resources" && *next == "-")
            };
            let next = args.get(at + 1).filter(is_value);
            let (value, end) = match (has_value, value, next) {
                (true, Some(value), _) => (value, at + 1),
                (true, None, Some(next)) => (next.as_os_str(), at + 2),
                (true, None, None) => return (at, unreadable("cannot find the value of")),
                (false, None, _) => (OsStr::new(""), at + 1),
                (false, Some(_), _) => return (at, unreadable("unknown value in")),
            };
            // For an empty root runc 1.1 takes the bundle, and runc 1.5 the working directory. crun 1.8 takes
            // --rootless for --root.
            let differs = (matches!(long, "root" | "bundle") && value.is_empty())
                || (long == "rootless" && family == Family::Crun);
            if differs {
                return (at, unreadable("low-level runtimes differ on"));
            }
            at = end;
            if matches!(long, "help" | "version") {
                return (at, Stop::Answered);
            }
            self.0.push((long, value));
        }
        (at, Stop::Word)
    }

    /// Returns a call of a command, whose arguments begin at `at`.
    fn command(
        &mut self,
        family: Family,
        command: &'static str,
        all: &'a [OsString],
        at: usize,
    ) -> Verb {
        let args = &all[at..];
        let known = match command {
            "delete" => DELETE,
            "update" => UPDATE,
            _ => MAKE,
        };
        let (end, stop) = self.read(family, known, args);
        let why = match (stop, &args[end..]) {
            (Stop::Answered, _) => return Verb::Other,
            (Stop::Unreadable(why), _) => why,
            (Stop::Word, [id]) | (Stop::Dashes, [_, id]) if !id.is_empty() => {
                match self.of_one(command, id, at + end) {
                    Ok(verb) => return verb,
                    Err(why) => why,
                }
            }
            (_, words) => format!(
                "expected the container's id after the options, and nothing else: {} arguments",
                words.len()
            ),
        };
        match command {
            // The container's own hook releases what it has.
            "delete" => Verb::Other,
            _ => unclear(command, why, args),
        }
    }

    /// Returns the call of a command on one container, or why it is unreadable.
    fn of_one(
        &self,
        command: &'static str,
        id: &OsStr,
        options_end: usize,
    ) -> Result<Verb, String> {
        let path = |name| {
            let path = self.value(name).filter(|path| !path.is_empty());
            path.map(PathBuf::from)
        };
        // runc takes a leading zero for base 8.
        let is_plain = |given: &&OsStr| {
            let number = given.to_str().and_then(|text| text.parse::<u32>().ok());
            number.is_some_and(|number| *given == number.to_string().as_str())
        };
        let given = self.value("preserve-fds");
        if let Some(given) = given.filter(|given| !is_plain(given)) {
            let given = given.display();
            return Err(format!("unknown number in --preserve-fds {given}"));
        }
        let id = id.to_owned();
        let detach = self.value("detach").is_some();
        let how = match (command, path("resources")) {
            ("create", _) => How::Create,
            ("run", _) => How::Run { detach },
            ("restore", _) => How::Restore,
            ("delete", _) => return Ok(Verb::Delete(id)),
            (_, None) => return Ok(Verb::Other),
            (_, Some(resources)) => {
                return Ok(Verb::Update(Update {
                    id,
                    resources,
                    options_end,
                }));
            }
        };
        Ok(Verb::Make(Create {
            how,
            id,
            bundle: path("bundle"),
            config: path("config"),
        }))
    }

    fn value(&self, name: &str) -> Option<&'a OsStr> {
        let mut latest = self.0.iter().rev();
        latest.find_map(|(known, value)| (*known == name).then_some(*value))
    }

    fn call(&self, family: Family, verb: Verb) -> Call {
        let mut latest = self.0.iter().rev();
        let manager = latest.find(|(name, _)| matches!(*name, "cgroup-manager" | "systemd-cgroup"));
        let log = self.value("log").filter(|log| !log.is_empty());
        let log = log.and_then(|log| log_file(family, log));
        let is_json = self.value("log-format").is_some_and(|form| form == "json");
        Call {
            root: self.value("root").map(PathBuf::from),
            log: log.map(|file| Log { file, is_json }),
            systemd_cgroup: manager
                .is_some_and(|(name, value)| *name == "systemd-cgroup" || *value == "systemd"),
            no_cgroup: manager.is_some_and(|(_, value)| *value == "disabled"),
            verb,
        }
    }
}

/// Returns the log's file. crun takes `file:PATH` too, and a log with another word before a colon is not a file.
fn log_file(family: Family, log: &OsStr) -> Option<PathBuf> {
    let bytes = log.as_bytes();
    match bytes.strip_prefix(b"file:") {
        Some(path) if family == Family::Crun => Some(OsStr::from_bytes(path).into()),
        _ => (family == Family::Runc || !bytes.contains(&b':')).then(|| log.into()),
    }
}
