//! Reads arguments as crun does: GNU argp over getopt_long. It stops at the first argument that is no option,
//! once for the global options and once for the command's.
//!
//! A long option may be cut short while it is unambiguous. One-letter options may be written together, and
//! with their value.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::given::{Given, Key, refused};
use super::{Call, Command, Update, Verb, lost};
use runmig_lease::error::Result;

struct Opt {
    long: &'static str,
    short: u8,
    key: Key,
    takes: Takes,
    /// Marks an option that some versions of crun lack. An abbreviation prefers an option without this mark.
    newer: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
    /// Takes a value only as `--option=value`.
    Maybe,
}
use Takes::{Maybe, Nothing, Value};

const fn opt(long: &'static str, short: u8, key: Key, takes: Takes) -> Opt {
    let newer = false;
    Opt {
        long,
        short,
        key,
        takes,
        newer,
    }
}

const fn newer(long: &'static str, key: Key, takes: Takes) -> Opt {
    let newer = true;
    Opt {
        long,
        short: 0,
        key,
        takes,
        newer,
    }
}

/// The options of argp itself, on every level.
const ARGP: &[Opt] = &[
    opt("help", b'?', Key::Help, Nothing),
    opt("usage", 0, Key::Help, Nothing),
    opt("program-name", 0, Key::Skip, Value),
    opt("HANG", 0, Key::Skip, Maybe),
];

const GLOBAL: &[Opt] = &[
    opt("root", 0, Key::Root, Value),
    opt("log", 0, Key::Log, Value),
    opt("log-format", 0, Key::LogFormat, Value),
    opt("systemd-cgroup", 0, Key::SystemdCgroup, Nothing),
    opt("cgroup-manager", 0, Key::CgroupManager, Value),
    opt("debug", 0, Key::Debug, Nothing),
    opt("version", b'v', Key::Version, Nothing),
    opt("version", b'V', Key::Version, Nothing),
    newer("log-level", Key::LogLevel, Value),
    // as old as --root, and once the same: an abbreviation of both means --root
    newer("rootless", Key::Rootless, Value),
];

const CREATE: &[Opt] = &[
    opt("bundle", b'b', Key::Bundle, Value),
    opt("config", b'f', Key::Config, Value),
    opt("console-socket", 0, Key::Skip, Value),
    opt("preserve-fds", 0, Key::PreserveFds, Value),
    opt("no-pivot", 0, Key::Skip, Nothing),
    opt("pid-file", 0, Key::PidFile, Value),
    opt("no-subreaper", 0, Key::Skip, Nothing),
    opt("no-new-keyring", 0, Key::Skip, Nothing),
];

const RUN: &[Opt] = &[
    opt("detach", b'd', Key::Detach, Nothing),
    newer("keep", Key::Keep, Nothing),
];

const RESTORE: &[Opt] = &[
    opt("bundle", b'b', Key::Bundle, Value),
    opt("image-path", 0, Key::Skip, Value),
    opt("work-path", 0, Key::Skip, Value),
    opt("tcp-established", 0, Key::Skip, Nothing),
    opt("ext-unix-sk", 0, Key::Skip, Nothing),
    opt("shell-job", 0, Key::Skip, Nothing),
    opt("detach", b'd', Key::Detach, Nothing),
    opt("pid-file", 0, Key::Skip, Value),
    opt("console-socket", 0, Key::Skip, Value),
    opt("file-locks", 0, Key::Skip, Nothing),
    opt("manage-cgroups-mode", 0, Key::Skip, Value),
    newer("tcp-close", Key::Skip, Nothing),
    newer("network-lock", Key::Skip, Value),
    newer("lsm-profile", Key::Skip, Value),
    newer("lsm-mount-context", Key::Skip, Value),
];

const DELETE: &[Opt] = &[
    opt("force", b'f', Key::Force, Nothing),
    opt("regex", b'r', Key::Regex, Nothing),
];

const UPDATE: &[Opt] = &[
    opt("resources", b'r', Key::Resources, Value),
    opt("blkio-weight", 0, Key::Skip, Value),
    opt("cpu-period", 0, Key::Skip, Value),
    opt("cpu-quota", 0, Key::Skip, Value),
    opt("cpu-rt-period", 0, Key::Skip, Value),
    opt("cpu-rt-runtime", 0, Key::Skip, Value),
    opt("cpu-share", 0, Key::Skip, Value),
    opt("cpuset-cpus", 0, Key::Skip, Value),
    opt("cpuset-mems", 0, Key::Skip, Value),
    opt("kernel-memory", 0, Key::Skip, Value),
    opt("kernel-memory-tcp", 0, Key::Skip, Value),
    opt("memory", 0, Key::Skip, Value),
    opt("memory-reservation", 0, Key::Skip, Value),
    opt("memory-swap", 0, Key::Skip, Value),
    opt("pids-limit", 0, Key::Skip, Value),
    newer("l3-cache-schema", Key::Skip, Value),
    newer("mem-bw-schema", Key::Skip, Value),
];

type Options = [&'static [Opt]; 3];

fn options_of(command: Command) -> Options {
    match command {
        Command::Create => [ARGP, CREATE, &[]],
        Command::Run => [ARGP, CREATE, RUN],
        Command::Restore => [ARGP, RESTORE, &[]],
        Command::Delete => [ARGP, DELETE, &[]],
    }
}

pub(super) fn parse(args: &[OsString]) -> Result<Call> {
    let mut given = Given::default();
    let mut at = 0;
    loop {
        match read([ARGP, GLOBAL, &[]], &mut given, &args[at..]) {
            Read::Done { rest, .. } => {
                at += rest;
                break;
            }
            Read::Answer => return Ok(given.call(Verb::Other)),
            Read::Unknown(n) => {
                at += n;
                // a newer crun's option, in one argument whatever its meaning
                if !has_value(&args[at]) {
                    return lost(&args[at], "unknown option", &args[at + 1..]);
                }
                at += 1;
            }
            Read::Wrong(n, _) => {
                at += n;
                return lost(&args[at], "unreadable option", &args[at + 1..]);
            }
        }
    }
    given.log = given.log.and_then(log_file);
    let Some(word) = args.get(at) else {
        return Ok(given.call(Verb::Other));
    };
    match Command::of(word) {
        Some(command) => parse_command(command, given, &args[at + 1..]),
        None if word == "update" => Ok(parse_update(given, &args[at + 1..], at + 1)),
        None if word == "features" => Ok(given.call(Verb::Features)),
        None => Ok(given.call(Verb::Other)),
    }
}

fn parse_command<'a>(command: Command, mut given: Given<'a>, args: &'a [OsString]) -> Result<Call> {
    if args.is_empty() {
        return Ok(given.call(Verb::Other));
    }
    let why = match read(options_of(command), &mut given, args) {
        Read::Answer => return Ok(given.call(Verb::Other)),
        Read::Done { rest, .. } => match &args[rest..] {
            // restore may have one more argument, which crun ignores
            [id] if !given.bundle.is_some_and(OsStr::is_empty) => {
                return given.command(command, id, strtol);
            }
            [id, _] if command == Command::Restore => {
                return given.command(command, id, strtol);
            }
            [_] => "--bundle is empty".to_owned(),
            ids => format!(
                "{} arguments where crun wants the container's id",
                ids.len()
            ),
        },
        Read::Unknown(at) => format!("unknown option {}", args[at].display()),
        Read::Wrong(at, why) => format!("{}: {why}", args[at].display()),
    };
    match command {
        // crun will refuse this delete as well
        Command::Delete => Ok(given.call(Verb::Other)),
        _ => Err(refused(command, &why)),
    }
}

/// Returns the call of an update. If runmig cannot read the options, either crun refuses them too, or they
/// leave the devices alone.
fn parse_update<'a>(mut given: Given<'a>, args: &'a [OsString], before: usize) -> Call {
    let read = read([ARGP, UPDATE, &[]], &mut given, args);
    let (Read::Done { end, rest }, Some(resources)) = (read, given.resources) else {
        return given.call(Verb::Other);
    };
    match &args[rest..] {
        [id] if given.unclear_root().is_none() => given.call(Verb::Update(Update {
            id: id.clone(),
            resources: resources.into(),
            options_end: before + end,
        })),
        _ => given.call(Verb::Other),
    }
}

enum Read {
    /// The end of the options, and the first argument that is no option, after any `--`.
    Done {
        end: usize,
        rest: usize,
    },
    /// Help or version: crun answers at once, whatever follows.
    Answer,
    Unknown(usize),
    Wrong(usize, &'static str),
}

fn read<'a>(known: Options, given: &mut Given<'a>, args: &'a [OsString]) -> Read {
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let next = args.get(at + 1).map(OsString::as_os_str);
        let took = match arg.as_bytes() {
            b"--" => {
                return Read::Done {
                    end: at,
                    rest: at + 1,
                };
            }
            [b'-', b'-', long @ ..] => read_long(known, given, long, next),
            [b'-', short @ ..] if !short.is_empty() => read_short(known, given, short, next),
            _ => return Read::Done { end: at, rest: at },
        };
        match took {
            Ok(took) => at += took,
            Err(None) => return Read::Unknown(at),
            Err(Some(why)) => return Read::Wrong(at, why),
        }
        if given.help || given.version {
            return Read::Answer;
        }
    }
    Read::Done { end: at, rest: at }
}

fn has_value(arg: &OsStr) -> bool {
    let bytes = arg.as_bytes();
    bytes.starts_with(b"--") && bytes.contains(&b'=')
}

/// The number of arguments that an option took, or the reason why crun cannot read it. `None` is an unknown
/// option.
type Took = Result<usize, Option<&'static str>>;

fn read_long<'a>(
    known: Options,
    given: &mut Given<'a>,
    arg: &'a [u8],
    next: Option<&'a OsStr>,
) -> Took {
    let end = arg.iter().position(|&c| c == b'=');
    let name = &arg[..end.unwrap_or(arg.len())];
    let value = end.map(|end| OsStr::from_bytes(&arg[end + 1..]));
    let opt = find_long(known, name)?;
    match (opt.takes, value, next) {
        (Nothing, Some(_), _) => return Err(Some("it takes no value")),
        (Nothing | Maybe, ..) => given.switch(opt.key, true),
        (Value, Some(value), _) => given.value(opt.key, value),
        (Value, None, Some(next)) => {
            given.value(opt.key, next);
            return Ok(2);
        }
        (Value, None, None) => return Err(Some("its value is missing")),
    }
    Ok(1)
}

fn find_long(known: Options, name: &[u8]) -> Result<&'static Opt, Option<&'static str>> {
    let all = || known.into_iter().flatten();
    if let Some(exact) = all().find(|o| o.long.as_bytes() == name) {
        return Ok(exact);
    }
    for newer in [false, true] {
        let mut found = all().filter(|o| o.newer == newer && o.long.as_bytes().starts_with(name));
        let Some(first) = found.next() else {
            continue;
        };
        // --version has two entries, for its two letters
        return match found.all(|o| o.long == first.long) {
            true => Ok(first),
            false => Err(Some("it abbreviates several options")),
        };
    }
    Err(None)
}

/// Reads letters that are written together. The last of them may have a value.
fn read_short<'a>(
    known: Options,
    given: &mut Given<'a>,
    letters: &'a [u8],
    next: Option<&'a OsStr>,
) -> Took {
    for (i, letter) in letters.iter().enumerate() {
        let mut all = known.into_iter().flatten();
        let opt = all.find(|o| o.short == *letter).ok_or(None)?;
        if opt.takes != Value {
            given.switch(opt.key, true);
            // argp acts on each letter as it comes
            if given.help || given.version {
                return Ok(1);
            }
            continue;
        }
        let rest = &letters[i + 1..];
        if !rest.is_empty() {
            given.value(opt.key, OsStr::from_bytes(rest));
            return Ok(1);
        }
        given.value(opt.key, next.ok_or(Some("its value is missing"))?);
        return Ok(2);
    }
    Ok(1)
}

/// Returns the file of `PATH` or `file:PATH`. With another word before a colon, the log is no file.
fn log_file(log: &OsStr) -> Option<&OsStr> {
    let bytes = log.as_bytes();
    match bytes.strip_prefix(b"file:") {
        Some(path) => Some(OsStr::from_bytes(path)),
        None => (!bytes.contains(&b':')).then_some(log),
    }
}

/// Reads a number as strtol does. crun 1.8 ignores the text after the digits.
fn strtol(value: &OsStr) -> Option<i64> {
    let text = value.as_bytes().trim_ascii_start();
    let (negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        [b'+', text @ ..] => (false, text),
        _ => (false, text),
    };
    let digits = text.iter().take_while(|c| c.is_ascii_digit());
    let n = digits.fold(0i64, |n, c| {
        n.saturating_mul(10).saturating_add((c - b'0').into())
    });
    Some(if negative { -n } else { n })
}
