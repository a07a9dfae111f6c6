//! Other programs that change our ResourceSlices again and again.

use crate::obstacle::Obstacles;
use std::time::Duration;
use tokio::time::Instant;

/// The time without a foreign change after which the next one counts as the first.
const QUIET: Duration = Duration::from_secs(60);
/// The foreign changes in a row that are undone at once.
const AT_ONCE: u32 = 3;
/// The time between two writes of all ResourceSlices.
const WIPES: Duration = Duration::from_secs(1);

/// The changes by others that were undone of late. A program that changes ResourceSlices again and again, such as a driver
/// on another machine with the name of this node, is named once and slowed down: each write wakes all waiting pods.
#[derive(Default)]
pub(super) struct Contest {
    changes: Obstacles,
    /// The removals of all ResourceSlices, which have no part in that: the kubelet of this node does so at its start.
    wipes: Obstacles,
    last: Option<Instant>,
    /// The time before which no change is undone, and no removal of all.
    rests: [Option<Instant>; 2],
}

impl Contest {
    /// Notes a foreign change that is undone now.
    pub(super) fn note(&mut self, line: &str, is_wipe: bool, now: Instant) {
        if self.last.is_some_and(|last| now - last > QUIET) {
            self.changes.are_over();
            self.wipes.are_over();
        }
        self.last = Some(now);
        let of_kind = match is_wipe {
            true => &mut self.wipes,
            false => &mut self.changes,
        };
        if of_kind.is_new(line) {
            tracing::warn!("{line}");
        }
        if is_wipe {
            self.rests[1] = Some(now + WIPES);
        } else if self.changes.tries() > AT_ONCE {
            self.rests[0] = Some(now + self.changes.pause());
        }
    }

    /// Returns the earliest time of the next write.
    pub(super) fn rest(&self, is_wiped: bool) -> Option<Instant> {
        self.rests[usize::from(is_wiped)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restores_a_wiped_list_at_once() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        for _ in 0..10 {
            contest.note("changed", false, now);
        }
        assert!(contest.rest(false).unwrap() > now + Duration::from_secs(20));
        assert_eq!(contest.rest(true), None);
        for _ in 0..10 {
            contest.note("removed", true, now);
        }
        assert_eq!(contest.rest(true), Some(now + WIPES));
    }

    #[test]
    fn slows_down_repeated_changes() {
        let (mut contest, now) = (Contest::default(), Instant::now());
        for _ in 0..AT_ONCE {
            contest.note("changed", false, now);
            assert_eq!(contest.rest(false), None);
        }
        contest.note("changed", false, now);
        let rest = contest.rest(false).unwrap();
        assert!(rest > now + Duration::from_secs(5));
        contest.note("changed", false, now + QUIET * 2);
        assert_eq!(contest.rest(false), Some(rest), "the quiet time forgets");
    }
}
