//! Reads arguments as runc does: urfave/cli v1 over Go's flag package. One dash is as good as two, and an
//! option has no abbreviation.
//!
//! A command's options may follow its arguments: urfave moves them to the front before it reads them. That
//! move changed twice. If versions of runc would create different containers, runmig refuses the call.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::given::{Given, Key, refused};
use super::{Call, Command, Verb, lost};
use runmig_lease::error::Result;

/// A name of an option. Two names of one key are two forms of one option, unless the key is `Skip`.
struct Flag(&'static str, Key, Takes);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// `--option`, or `--option=false`.
    Switch,
    Value,
}
use Takes::{Switch, Value};

const GLOBAL: &[Flag] = &[
    Flag("root", Key::Root, Value),
    Flag("log", Key::Log, Value),
    Flag("log-format", Key::LogFormat, Value),
    Flag("systemd-cgroup", Key::SystemdCgroup, Switch),
    Flag("debug", Key::Debug, Switch),
    Flag("rootless", Key::Skip, Value),
    // up to runc 1.1
    Flag("criu", Key::Skip, Value),
    Flag("help", Key::Help, Switch),
    Flag("h", Key::Help, Switch),
    Flag("version", Key::Version, Switch),
    Flag("v", Key::Version, Switch),
];

const CREATE: &[Flag] = &[
    Flag("bundle", Key::Bundle, Value),
    Flag("b", Key::Bundle, Value),
    Flag("pid-file", Key::PidFile, Value),
    Flag("console-socket", Key::Skip, Value),
    // from runc 1.2
    Flag("pidfd-socket", Key::Skip, Value),
    Flag("no-pivot", Key::Skip, Switch),
    Flag("no-new-keyring", Key::Skip, Switch),
    Flag("preserve-fds", Key::PreserveFds, Value),
    Flag("help", Key::Help, Switch),
    Flag("h", Key::Help, Switch),
];

const RUN: &[Flag] = &[
    Flag("detach", Key::Detach, Switch),
    Flag("d", Key::Detach, Switch),
    Flag("keep", Key::Keep, Switch),
    Flag("no-subreaper", Key::Skip, Switch),
];

const RESTORE: &[Flag] = &[
    Flag("bundle", Key::Bundle, Value),
    Flag("b", Key::Bundle, Value),
    Flag("image-path", Key::Skip, Value),
    Flag("work-path", Key::Skip, Value),
    Flag("console-socket", Key::Skip, Value),
    Flag("pid-file", Key::Skip, Value),
    Flag("manage-cgroups-mode", Key::Skip, Value),
    Flag("empty-ns", Key::Skip, Value),
    Flag("lsm-profile", Key::Skip, Value),
    Flag("lsm-mount-context", Key::Skip, Value),
    Flag("tcp-established", Key::Skip, Switch),
    Flag("ext-unix-sk", Key::Skip, Switch),
    Flag("shell-job", Key::Skip, Switch),
    Flag("file-locks", Key::Skip, Switch),
    Flag("detach", Key::Detach, Switch),
    Flag("d", Key::Detach, Switch),
    Flag("no-subreaper", Key::Skip, Switch),
    Flag("no-pivot", Key::Skip, Switch),
    Flag("auto-dedup", Key::Skip, Switch),
    Flag("lazy-pages", Key::Skip, Switch),
    Flag("help", Key::Help, Switch),
    Flag("h", Key::Help, Switch),
];

const DELETE: &[Flag] = &[
    Flag("force", Key::Force, Switch),
    Flag("f", Key::Force, Switch),
    Flag("help", Key::Help, Switch),
    Flag("h", Key::Help, Switch),
];

fn flags_of(command: Command) -> [&'static [Flag]; 2] {
    match command {
        Command::Create => [CREATE, &[]],
        Command::Run => [CREATE, RUN],
        Command::Restore => [RESTORE, &[]],
        Command::Delete => [DELETE, &[]],
    }
}

pub(super) fn parse(args: &[OsString]) -> Result<Call> {
    let mut given = Given::default();
    let mut flags = Flags::new([GLOBAL, &[]]);
    let word = |at: usize| args.get(at).map(OsString::as_os_str);
    let mut at = 0;
    loop {
        match flags.read(&mut given, word(at), word(at + 1)) {
            Read::Took(n) => at += n,
            Read::Done(n) => {
                at += n;
                break;
            }
            // a newer runc's option, in one argument whatever its meaning
            Read::Unknown { has_value: true } => at += 1,
            Read::Unknown { has_value: false } => {
                return lost(&args[at], "unknown option", &args[at + 1..]);
            }
            Read::Wrong(_) => return lost(&args[at], "unreadable option", &args[at + 1..]),
        }
    }
    let Some(word) = word(at) else {
        return Ok(given.call(Verb::Other));
    };
    if given.help || given.version {
        return Ok(given.call(Verb::Other));
    }
    match Command::of(word) {
        Some(command) => parse_command(command, &given, &args[at + 1..]),
        None if word == "features" => Ok(given.call(Verb::Features)),
        None => Ok(given.call(Verb::Other)),
    }
}

fn parse_command(command: Command, global: &Given, args: &[OsString]) -> Result<Call> {
    if args.is_empty() {
        return Ok(global.call(Verb::Other));
    }
    let mut taken: Option<Call> = None;
    let mut failed = None;
    for order in [Order::V1_22_1, Order::V1_22_2, Order::V1_22_9] {
        match parse_ordered(command, global, &reorder(command, order, args)) {
            Err(e) => failed = Some(e),
            Ok(call) => match &taken {
                Some(other) if *other != call => {
                    let why = "versions of runc read these arguments differently: \
                               put the options before the id, or write them as --option=value";
                    return Err(refused(command, why));
                }
                _ => taken = Some(call),
            },
        }
    }
    match (taken, failed) {
        (Some(call), _) => Ok(call),
        // runc will refuse this delete as well
        (None, _) if command == Command::Delete => Ok(global.call(Verb::Other)),
        (None, Some(e)) => Err(e),
        (None, None) => Ok(global.call(Verb::Other)),
    }
}

fn parse_ordered<'a>(command: Command, global: &Given<'a>, args: &[&'a OsStr]) -> Result<Call> {
    let mut given = global.clone();
    let mut flags = Flags::new(flags_of(command));
    let word = |at: usize| args.get(at).copied();
    let mut at = 0;
    loop {
        match flags.read(&mut given, word(at), word(at + 1)) {
            Read::Took(n) => at += n,
            Read::Done(n) => {
                at += n;
                break;
            }
            // even with its value, since runmig cannot know what the option changes
            Read::Unknown { .. } => {
                let why = format!("unknown option {}", args[at].display());
                return Err(refused(command, &why));
            }
            Read::Wrong(why) => {
                return Err(refused(command, &format!("{}: {why}", args[at].display())));
            }
        }
    }
    if given.help {
        return Ok(given.call(Verb::Other));
    }
    match args[at..] {
        [id] => given.command(command, id, go_int),
        ref ids => {
            let why = format!(
                "{} arguments where runc wants the container's id",
                ids.len()
            );
            Err(refused(command, &why))
        }
    }
}

/// Go's flag package, on one set of options.
struct Flags {
    known: [&'static [Flag]; 2],
    /// The options with a one-letter name so far, and those with a longer one, as a bit for each key. urfave
    /// refuses both names for one option.
    short: u32,
    long: u32,
}

enum Read {
    /// An option, which took this many arguments.
    Took(usize),
    /// The end of the options, with this many arguments to skip.
    Done(usize),
    Unknown {
        has_value: bool,
    },
    Wrong(&'static str),
}

impl Flags {
    fn new(known: [&'static [Flag]; 2]) -> Flags {
        Flags {
            known,
            short: 0,
            long: 0,
        }
    }

    fn read<'a>(
        &mut self,
        given: &mut Given<'a>,
        arg: Option<&'a OsStr>,
        next: Option<&'a OsStr>,
    ) -> Read {
        let name = match arg.map(OsStr::as_bytes) {
            Some(b"--") => return Read::Done(1),
            Some([b'-', b'-', name @ ..]) => name,
            Some([b'-', name @ ..]) if !name.is_empty() => name,
            _ => return Read::Done(0),
        };
        if matches!(name[0], b'-' | b'=') {
            return Read::Wrong("no option looks like this");
        }
        let (name, value) = split(name);
        let Some(&Flag(name, key, takes)) = find(self.known, name) else {
            let has_value = value.is_some();
            return Read::Unknown { has_value };
        };
        let forms = if name.len() == 1 {
            &mut self.short
        } else {
            &mut self.long
        };
        *forms |= 1 << key as u32;
        if key != Key::Skip && self.short & self.long != 0 {
            return Read::Wrong("two forms of the same option");
        }
        match (takes, value, next) {
            (Switch, value, _) => match value.map_or(Some(true), go_bool) {
                Some(on) => given.switch(key, on),
                None => return Read::Wrong("neither true nor false"),
            },
            (Value, Some(value), _) => given.value(key, OsStr::from_bytes(value)),
            (Value, None, Some(next)) => {
                given.value(key, next);
                return Read::Took(2);
            }
            (Value, None, None) => return Read::Wrong("its value is missing"),
        }
        Read::Took(1)
    }
}

/// The version of urfave/cli that changed how a command's options move to the front.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// runc up to 1.1: every argument that begins with a dash is an option.
    V1_22_1,
    /// Distributions' builds of runc up to 1.1: only a known option is an option.
    V1_22_2,
    /// runc from 1.2: a value may be `-` or `--`.
    V1_22_9,
}

fn reorder(command: Command, order: Order, args: &[OsString]) -> Vec<&OsStr> {
    let mut front: Vec<&OsStr> = Vec::with_capacity(args.len());
    let mut rest: Vec<&OsStr> = Vec::new();
    let mut value_may_follow = false;
    for (i, arg) in args.iter().enumerate() {
        let bytes = arg.as_bytes();
        let dash = bytes.starts_with(b"-");
        let flag = match order {
            Order::V1_22_1 => dash && bytes != b"-",
            _ => is_flag(command, bytes),
        };
        let no_value = match order {
            Order::V1_22_9 => flag,
            _ => dash,
        };
        if value_may_follow && !no_value {
            value_may_follow = false;
            front.push(arg);
        } else if bytes == b"--" {
            let tail = args[i..].iter().map(OsString::as_os_str);
            if order == Order::V1_22_9 {
                // the `--` goes before the arguments that stood before it
                front.push(arg);
                rest.extend(tail.skip(1));
            } else {
                rest.extend(tail);
            }
            break;
        } else if flag {
            front.push(arg);
            value_may_follow = !bytes.contains(&b'=');
        } else {
            // 1.22.1 forgets here that a value may follow, and 1.22.2 does not. If that matters, 1.22.9
            // differs from 1.22.2 as well, and runmig refuses the call.
            rest.push(arg);
        }
    }
    front.append(&mut rest);
    front
}

/// Returns whether urfave moves the argument as an option. A third dash counts for the move, though no option
/// is read with three.
fn is_flag(command: Command, arg: &[u8]) -> bool {
    let Some(name) = arg.strip_prefix(b"-") else {
        return false;
    };
    let name = match name.strip_prefix(b"-") {
        Some(name) => name.strip_prefix(b"-").unwrap_or(name),
        None => name,
    };
    find(flags_of(command), split(name).0).is_some()
}

fn split(name: &[u8]) -> (&[u8], Option<&[u8]>) {
    match name.iter().position(|&c| c == b'=') {
        Some(at) => (&name[..at], Some(&name[at + 1..])),
        None => (name, None),
    }
}

fn find(known: [&'static [Flag]; 2], name: &[u8]) -> Option<&'static Flag> {
    let mut all = known.into_iter().flatten();
    all.find(|flag| flag.0.as_bytes() == name)
}

/// Reads a bool as strconv.ParseBool does.
fn go_bool(value: &[u8]) -> Option<bool> {
    match value {
        b"1" | b"t" | b"T" | b"true" | b"TRUE" | b"True" => Some(true),
        b"0" | b"f" | b"F" | b"false" | b"FALSE" | b"False" => Some(false),
        _ => None,
    }
}

/// Reads a number as strconv.ParseInt does with base 0. It is a little more lenient, since it does not check
/// the positions of underscores.
fn go_int(value: &OsStr) -> Option<i64> {
    let digits = value.to_str()?.replace('_', "");
    let (negative, digits) = match digits.as_bytes().first()? {
        b'-' => (true, &digits[1..]),
        b'+' => (false, &digits[1..]),
        _ => (false, digits.as_str()),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', _, ..] => (&lower[1..], 8),
        _ => (lower.as_str(), 10),
    };
    // from_str_radix takes a sign of its own
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let n = i128::from_str_radix(digits, radix).ok()?;
    i64::try_from(if negative { -n } else { n }).ok()
}
