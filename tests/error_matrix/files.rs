//! Every call about a file of ours, the ledger's and the bundle's, with the errors that it can have.

use crate::faults_support::World;
use crate::faults_support::operations::Operation;
use crate::faults_support::strace::{self, Point, settled};
use crate::{empty, judge, report, tidy_up};
use nix::errno::Errno::{self, EACCES, EDQUOT, EIO, EMFILE, ENOLCK, ENOMEM, ENOSPC, EPERM, EROFS};
use std::collections::HashMap;

/// What the kernel may answer.
const ERRORS: &[(&str, &[Errno])] = &[
    ("fchmod", &[EIO, EROFS, EPERM]),
    ("fchmodat", &[EIO, EROFS, EPERM]),
    ("chmod", &[EIO, EROFS, EPERM]),
    ("fchown", &[EIO, EROFS, EPERM]),
    ("flock", &[ENOLCK, EIO]),
    ("fsync", &[EIO, ENOSPC, EDQUOT]),
    ("ftruncate", &[EIO, ENOSPC]),
    // Not ENOENT: the C library takes that for the end, and who reads for a directory without entries.
    ("getdents64", &[EIO, ENOMEM]),
    ("inotify_add_watch", &[ENOSPC, ENOMEM]),
    ("mkdir", &[ENOSPC, EROFS, EACCES, EIO]),
    ("open", &[EMFILE, EIO, ENOSPC, EROFS, EACCES]),
    ("openat", &[EMFILE, EIO, ENOSPC, EROFS, EACCES]),
    ("read", &[EIO]),
    ("rename", &[EIO, ENOSPC, EROFS, EACCES]),
    ("renameat", &[EIO, ENOSPC, EROFS, EACCES]),
    ("statx", &[EIO, EACCES]),
    ("unlink", &[EIO, EROFS, EACCES]),
    ("unlinkat", &[EIO, EROFS, EACCES]),
    ("write", &[ENOSPC, EIO, EDQUOT]),
];

/// At a call that is not reached: how many calls come before may depend on what else runs here.
const TRIES: usize = 4;

pub fn an_error_at_every_call(operation: &Operation) {
    if !strace::is_there() {
        return;
    }
    let world = World::small();
    let log = world.path("strace.log");
    let calls: Vec<&str> = ERRORS.iter().map(|(call, _)| *call).collect();
    let ours = ["state", "bundles"].map(|dir| format!("{}/", world.path(dir).display()));
    // Twice: the first makes what is made at first use only.
    let mut points = Vec::new();
    for _ in 0..2 {
        let call = (operation.begin)(&world);
        points = strace::calls(&call, &log, &calls);
        tidy_up(&world, "no fault");
        empty(&world, "no fault");
    }
    let is_about = |line: &str| ours.iter().any(|dir| line.contains(dir));
    points.retain(|p| is_about(&p.shown));
    let points = without_repetition(points);
    assert!(points.len() > 10, "hardly a call was found: {points:?}");
    let (mut tried, mut failed) = (0, 0);
    let mut wrong = Vec::new();
    let mut missed = 0;
    for (point, error) in with_errors(&points) {
        let at = format!("{}: {error:?} from {}", operation.name, point.shown);
        let mut reached = false;
        for _ in 0..TRIES {
            let call = (operation.begin)(&world);
            let out = settled(&strace::failing(&call, &log, point, &format!("{error:?}")));
            reached = is_about(&strace::injected(&log));
            failed += usize::from(reached && !out.status.success());
            // Of what failed instead, that it did no harm.
            let says = |line: &str| !reached || says(line, point, error);
            if let Err(e) = judge(&world, operation, &out, says) {
                wrong.push(format!("{at}: {e}"));
            }
            tidy_up(&world, &at);
            // A bundle that could not be put right is put right by its next create.
            if world.as_if_nothing_had_been().is_err() {
                settled(&(operation.begin)(&world));
                tidy_up(&world, &at);
            }
            empty(&world, &at);
            if reached {
                break;
            }
        }
        tried += usize::from(reached);
        missed += usize::from(!reached);
    }
    report(operation, "calls about files", tried, failed, &wrong);
    // What a look through the processes of the machine comes before moves with them, and is not counted.
    assert!(
        tried > 10,
        "{missed} of {} calls were not reached",
        points.len()
    );
}

fn says(line: &str, point: &Point, error: Errno) -> bool {
    let words = [format!("(os error {})", error as i32), error.to_string()];
    // The standard library keeps to itself why a look failed that it took by the way.
    point.call == "statx" || words.iter().any(|w| line.contains(w))
}

/// Of the looks at files of one kind, and of what is only told to people, the first and the last.
fn without_repetition(points: Vec<Point>) -> Vec<Point> {
    let kind = |p: &Point| -> Option<String> {
        let looks = matches!(
            p.call.as_str(),
            "getdents64" | "open" | "openat" | "read" | "statx"
        );
        let call = p.shown.split(") = ").next().unwrap_or_default();
        // What differs are ids and numbers.
        let kind = match call.split_once('>') {
            Some((file, _)) if p.call == "write" => file,
            _ => call,
        };
        let kind = kind.replace(|c: char| c.is_ascii_hexdigit(), "");
        let told = matches!(p.call.as_str(), "write" | "ftruncate")
            && (call.contains("/runmig.log>") || call.contains(".lock>"));
        (told || looks && !call.contains("O_CREAT")).then_some(kind)
    };
    let kinds: Vec<Option<String>> = points.iter().map(kind).collect();
    let is_kept = |i: usize| {
        let same = |other: &Option<String>| *other == kinds[i];
        kinds[i].is_none() || !kinds[..i].iter().any(same) || !kinds[i + 1..].iter().any(same)
    };
    let kept: Vec<bool> = (0..points.len()).map(is_kept).collect();
    let all = points.into_iter().zip(kept);
    all.filter(|(_, kept)| *kept).map(|(p, _)| p).collect()
}

/// One error for each call: of a function's, one after the other.
fn with_errors(points: &[Point]) -> Vec<(&Point, Errno)> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut all = Vec::new();
    for point in points {
        let nth = seen.entry(&point.call).or_default();
        let (_, errors) = { ERRORS.iter() }
            .find(|(call, _)| *call == point.call)
            .unwrap();
        all.push((point, errors[*nth % errors.len()]));
        *nth += 1;
    }
    all
}
