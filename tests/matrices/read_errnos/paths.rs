//! Reads as strace shows them, and as it counts them.

use crate::read_errnos::judge::TEMPORARY;
use testkit::faults::strace::{Call, Point};
use testkit::prelude::*;
use testkit::process::take_over;

/// Calls that read files, or look at them. strace skips those that the machine lacks.
pub const READS: &str = "?open,?openat,?openat2,?read,?pread64,?readv,?stat,?lstat,?newfstatat,?statx,?fstat,\
    ?readlink,?readlinkat,?getdents64,?faccessat2";

/// A call and the path that it reads, with `PID` for the numbers of passing processes.
pub type Read = (String, String);

/// The two paths of a call, as strace shows them: that of its descriptor, and that in quotes.
fn parts_of<'a>(call: &str, shown: &'a str) -> Option<(Option<&'a str>, Option<&'a str>)> {
    let arguments = shown.split_once('(')?.1;
    let first = arguments.split(',').next()?;
    let base = first
        .split_once('<')
        .and_then(|(_, rest)| rest.split('>').next());
    let by_descriptor = ["read", "pread64", "readv", "getdents64", "fstat"];
    let named = match by_descriptor.contains(&call) {
        true => None,
        false => arguments.split('"').nth(1).filter(|name| !name.is_empty()),
    };
    Some((base, named))
}

/// Finds the path of a call as strace shows it. None if it reads no file.
pub fn path_of(call: &str, shown: &str) -> Option<String> {
    let path = match parts_of(call, shown)? {
        (_, Some(name)) if name.starts_with('/') => PathBuf::from(name),
        (Some(base), Some(name)) => Path::new(base).join(name),
        (Some(base), None) => PathBuf::from(base),
        (None, _) => return None,
    };
    path.is_absolute()
        .then(|| path.to_string_lossy().into_owned())
}

/// Counts a call among those that have its path, as strace's `-P` counts them: others may come and go
/// in between. None if the path has the number of a passing process.
fn aimed(all: &[Point], at: usize) -> Option<(Point, String)> {
    let target = &all[at];
    let (base, named) = parts_of(&target.call, &target.shown)?;
    let path = named.or(base)?;
    let resolved = fs::canonicalize(path).ok();
    let is_it =
        |other: &str| other == path || resolved.as_deref().is_some_and(|r| r == Path::new(other));
    let has_it = |point: &&Point| {
        let is_same = point.call == target.call;
        let of_cwd = point.shown.contains("(AT_FDCWD<");
        parts_of(&point.call, &point.shown).is_some_and(|(base, named)| {
            is_same && (named.is_some_and(is_it) || !of_cwd && base.is_some_and(is_it))
        })
    };
    let nth = all[..=at].iter().filter(has_it).count() as u64;
    let of_process = path.strip_prefix("/proc/").is_some_and(|rest| {
        let pid = rest.split('/').next().unwrap_or_default();
        pid.parse::<i32>().is_ok() && !Path::new("/proc").join(pid).exists()
    });
    let passes = of_process || path.contains(TEMPORARY);
    let point = Point {
        nth,
        ..target.clone()
    };
    (!passes).then(|| (point, path.to_owned()))
}

/// Fails a call, with more options of strace. With a filter in the kernel, strace stops only the calls
/// that it looks at. It wants to follow children then, and would fail their calls too: a delete's are
/// the low-level runtime.
pub fn failing(operation: &str, call: &Call, log: &Path, all: &[Point], at: usize, e: i32) -> Call {
    let aim = aimed(all, at);
    let point = aim.as_ref().map_or(&all[at], |(point, _)| point);
    let call = strace::failing(call, log, point, &e.to_string());
    let mut command = Command::new(call.command.get_program());
    if operation != "delete" {
        command.args(["-f", "--seccomp-bpf"]);
    }
    if let Some((_, path)) = &aim {
        command.args(["-e", "quiet=path-resolution", "-P", path]);
    }
    take_over(&mut command, &call.command);
    Call { command, ..call }
}
