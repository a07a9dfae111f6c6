//! One operation, of which one read after the other fails.

use crate::read_errnos::before::Before;
use crate::read_errnos::paths::{READS, Read, failing, path_of};
use testkit::faults::strace::{Call, Point};
use testkit::prelude::*;

/// A read that is missed is tried again, so often.
const TRIES: usize = 4;

/// One operation of which reads fail.
pub struct Trial {
    operation: &'static str,
    before: Before,
    call: Call,
    log: PathBuf,
    all: Vec<Point>,
    cells: usize,
    wanted: BTreeSet<(Read, i32)>,
    failed: BTreeSet<(Read, i32)>,
    wrong: Vec<String>,
}

impl Trial {
    pub fn new(operation: &'static str, call: fn(&Before) -> Call) -> Trial {
        let before = Before::new();
        let log = before.world.path("strace.log");
        let call = call(&before);
        let all = strace::calls(&call, &log, READS);
        before.nothing_is_left().unwrap();
        before.peer_has_its_slice().unwrap();
        Trial {
            operation,
            before,
            call,
            log,
            all,
            cells: 0,
            wanted: BTreeSet::new(),
            failed: BTreeSet::new(),
            wrong: Vec::new(),
        }
    }

    /// The reads, each with where it is among all calls. A process that stays stands for those that
    /// pass.
    pub fn reads(&self) -> Vec<(Read, Vec<usize>)> {
        let mut reads: Vec<(Read, Vec<usize>)> = Vec::new();
        for (at, point) in self.all.iter().enumerate() {
            let Some(read) = self.before.read_of(point) else {
                continue;
            };
            match reads.iter_mut().find(|(known, _)| *known == read) {
                Some((_, places)) => places.push(at),
                None => reads.push((read, vec![at])),
            }
        }
        let staying = [1, std::process::id()].map(|pid| format!("/proc/{pid}/"));
        for (_, places) in &mut reads {
            let stays = |at: &usize| staying.iter().any(|p| self.all[*at].shown.contains(p));
            if places.iter().any(stays) {
                places.retain(stays);
            }
        }
        reads
    }

    /// Fails a read. Each time it is another of the same reads: a record is read under other locks later.
    pub fn fail(&mut self, read: &Read, places: &[usize], errno: i32, nth: usize) {
        if self.before.is_lie(&read.1, errno) {
            return;
        }
        self.wanted.insert((read.clone(), errno));
        for attempt in 0..TRIES {
            let at = places[(nth + attempt) % places.len()];
            if self.fail_once(at, errno).as_ref() == Some(read) {
                break;
            }
        }
    }

    /// Gives the read that failed. By the number of a call, it can be another than the one meant.
    fn fail_once(&mut self, at: usize, errno: i32) -> Option<Read> {
        let (call, log) = (&self.call, &self.log);
        self.before.restore();
        let out = settled(&failing(self.operation, call, log, &self.all, at, errno));
        let shown = strace::injected(log);
        let injected = Point {
            shown: shown.clone(),
            ..self.all[at].clone()
        };
        let failed = self.before.read_of(&injected)?;
        let path = path_of(&injected.call, &shown)?;
        self.failed.insert((failed.clone(), errno));
        if self.before.is_lie(&path, errno) {
            return Some(failed);
        }
        self.cells += 1;
        let operation = self.operation;
        if let Err(e) = self.before.judge(operation, &path, errno, &out) {
            self.wrong.push(format!("{operation}: {shown}: {e}"));
        }
        Some(failed)
    }

    /// Gives an errno that was meant for reads, and reached none.
    pub fn unsent(&self) -> Option<i32> {
        let sent = |errno: i32| self.failed.iter().any(|(_, e)| *e == errno);
        let mut wanted = self.wanted.iter().map(|(_, errno)| *errno);
        wanted.find(|errno| !sent(*errno))
    }

    /// Checks that each answer was fine, and that the reads that were meant have failed. Gives the errnos
    /// that were sent.
    pub fn passes(self) -> BTreeSet<i32> {
        let missed: Vec<_> = self.wanted.difference(&self.failed).collect();
        let reads: BTreeSet<&Read> = self.failed.iter().map(|(read, _)| read).collect();
        let sent: BTreeSet<i32> = self.failed.iter().map(|(_, errno)| *errno).collect();
        // Past the harness, which keeps what a passing test prints.
        let _ = writeln!(
            std::io::stderr(),
            "errnos: {}: {} cells of {} reads and {} errnos; missed {} of {}",
            self.operation,
            self.cells,
            reads.len(),
            sent.len(),
            missed.len(),
            self.wanted.len()
        );
        let (count, wrong) = (self.wrong.len(), self.wrong.join("\n"));
        assert!(self.wrong.is_empty(), "{count} wrong:\n{wrong}");
        assert!(missed.len() * 10 <= self.wanted.len(), "missed: {missed:?}");
        sent
    }
}
