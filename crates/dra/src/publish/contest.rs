//! Other programs that change our ResourceSlices again and again.

use crate::obstacle::Obstacles;
use std::time::Duration;
use tokio::time::Instant;

/// The time without a foreign change after which the next one counts as the first.
const QUIET: Duration = Duration::from_secs(60);
/// The foreign changes in a row that are undone at once, such as those of a kubelet that restarts.
const AT_ONCE: u32 = 3;

/// The changes by others that were undone of late. A program that changes ResourceSlices again and again, such as a driver
/// on another machine with the name of this node, is named once and slowed down: each write wakes all waiting pods.
#[derive(Default)]
pub(super) struct Contest {
    changes: Obstacles,
    last: Option<Instant>,
}

impl Contest {
    /// Notes a foreign change.
    pub(super) fn note(&mut self, line: &str) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last > QUIET) {
            self.changes.are_over();
        }
        self.last = Some(now);
        if self.changes.is_new(line) {
            tracing::warn!("{line}");
        }
    }

    /// Returns the time before the next write.
    pub(super) fn pause(&self) -> Duration {
        match self.changes.tries() {
            0..=AT_ONCE => Duration::ZERO,
            _ => self.changes.pause(),
        }
    }
}
