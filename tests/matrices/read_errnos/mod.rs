//! Each read of a release, failing with each errno: through the programs, one read at a time.

mod before;
mod judge;
mod paths;
mod trial;

use before::Before;
use std::panic::resume_unwind;
use std::thread;
use testkit::faults::check::names;
use testkit::faults::operations::ID;
use testkit::faults::strace::Call;
use testkit::prelude::*;
use testkit::process::alone;
use trial::Trial;

/// The highest errno of Linux.
const LAST: i32 = 133;

/// The errnos that the sources tell apart, by name or by kind, and those that the standard library does.
/// All others take one way through the code.
fn told_apart() -> Vec<i32> {
    use nix::errno::Errno;
    const KINDS: [(&str, i32); 9] = [
        ("NotFound", libc::ENOENT),
        ("PermissionDenied", libc::EACCES),
        ("WouldBlock", libc::EAGAIN),
        ("AlreadyExists", libc::EEXIST),
        ("NotADirectory", libc::ENOTDIR),
        ("InvalidInput", libc::EINVAL),
        ("FileTooLarge", libc::EFBIG),
        ("Interrupted", libc::EINTR),
        ("Unsupported", libc::ENOSYS),
    ];
    let mut found: BTreeSet<i32> = [libc::EINTR, libc::ENOSYS, libc::EPERM, libc::EIO].into();
    let name = |errno| (format!("{:?}", Errno::from_raw(errno)), errno);
    let named: Vec<(String, i32)> = (1..=LAST).map(name).collect();
    let mut folders = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(folder) = folders.pop() {
        for name in names(&folder) {
            let path = folder.join(name);
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric());
            for word in words {
                let kind = KINDS.iter().find(|(kind, _)| *kind == word);
                found.extend(kind.map(|(_, errno)| *errno));
                found.extend(named.iter().find(|(name, _)| name == word).map(|(_, e)| *e));
            }
        }
    }
    found.into_iter().collect()
}

/// The errnos that the reads of one part fail with.
struct Errnos {
    apart: Vec<i32>,
    others: Vec<i32>,
    every: bool,
    /// Whether each read fails with all that are told apart, and each of the others is sent somewhere.
    /// Else a read fails with one of each kind.
    all: bool,
}

impl Errnos {
    /// Deals the errnos to parts. `RUNMIG_EVERY_ERRNO` sends all 133 to each read.
    fn dealt(part: usize, parts: usize) -> Errnos {
        let apart = told_apart();
        let others = (1..=LAST).filter(|e| !apart.contains(e));
        Errnos {
            others: others.skip(part).step_by(parts).collect(),
            apart: { apart.iter().copied() }
                .skip(part)
                .step_by(parts)
                .collect(),
            every: std::env::var_os("RUNMIG_EVERY_ERRNO").is_some(),
            all: parts > 1,
        }
    }

    /// Gives those for one of so many reads.
    fn of_read(&self, number: usize, reads: usize) -> Vec<i32> {
        let Errnos { apart, others, .. } = self;
        let share = others.len().div_ceil(reads);
        let other = |n: usize| others[(number * share + n) % others.len()];
        match (self.every, self.all) {
            (true, _) => apart.iter().chain(others).copied().collect(),
            (_, true) => { apart.iter().copied() }
                .chain((0..share).map(other))
                .collect(),
            (_, false) => vec![apart[number % apart.len()], other(0)],
        }
    }
}

/// Fails each read of an operation, and gives the errnos that were sent.
fn fail_part(mut trial: Trial, errnos: &Errnos) -> BTreeSet<i32> {
    let reads = trial.reads();
    assert!(reads.len() > 30, "hardly a read was found: {reads:?}");
    for (number, (read, places)) in reads.iter().enumerate() {
        let errnos = errnos.of_read(number, reads.len());
        for (nth, errno) in errnos.into_iter().enumerate() {
            trial.fail(read, places, errno, nth);
        }
    }
    // A read that was missed had an errno that no other had.
    for (read, places) in &reads {
        let Some(errno) = trial.unsent() else { break };
        trial.fail(read, places, errno, 0);
    }
    trial.passes()
}

/// Fails each read of an operation, in as many worlds at a time as there are parts.
fn fail_reads(operation: &'static str, parts: usize, call: fn(&Before) -> Call) {
    if !strace::is_there() {
        return;
    }
    let sent: Vec<BTreeSet<i32>> = thread::scope(|scope| {
        let run = |part| {
            let errnos = Errnos::dealt(part, parts);
            scope.spawn(move || fail_part(Trial::new(operation, call), &errnos))
        };
        let running: Vec<_> = (0..parts).map(run).collect();
        { running.into_iter() }
            .map(|part| part.join().unwrap_or_else(|e| resume_unwind(e)))
            .collect()
    });
    let is_unsent = |errno: &i32| !sent.iter().any(|s| s.contains(errno));
    let unsent: Vec<i32> = (1..=LAST).filter(is_unsent).collect();
    let is_whole = parts == 1 || unsent.is_empty();
    assert!(is_whole, "sent to no read: {unsent:?}");
}

/// Failure: any read of a file fails during a hook, `delete`, `gc` or `migctl release`, with any errno
#[test]
fn gc_survives_every_read() {
    alone(|| {
        fail_reads("gc", 2, |before| before.world.migctl(&["gc"]).into());
    });
}

#[test]
fn release_survives_every_read() {
    alone(|| {
        fail_reads("release", 1, |before| {
            before.world.migctl(&["release", ID]).into()
        });
    });
}

#[test]
fn hook_survives_every_read() {
    alone(|| {
        fail_reads("poststop", 1, |before| before.world.hook(ID, &before.lease));
    });
}

#[test]
fn delete_survives_every_read() {
    alone(|| {
        fail_reads("delete", 1, |before| {
            before.world.runmig(&["delete", "--force", ID]).into()
        });
    });
}
