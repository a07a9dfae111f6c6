//! Obstacles to work that is tried again and again: each gets one line in the log, and the tries become rarer.

use runmig_lease::error::Error;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The time before the second try, and the longest between two. It doubles from one to the other.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The most lines about one piece of work until it succeeds, in case that each try fails in words of its own.
const MAX_LINES: usize = 8;

/// The obstacles to one piece of work since its last success.
#[derive(Debug, Default)]
pub(crate) struct Obstacles {
    said: BTreeSet<String>,
    tries: u32,
}

impl Obstacles {
    /// Notes a failed try. Returns whether the log needs the line.
    pub(crate) fn is_new(&mut self, line: &str) -> bool {
        self.tries = self.tries.saturating_add(1);
        self.said.len() < MAX_LINES && self.said.insert(line.to_owned())
    }

    /// Notes a failed try, with its line in the log where that needs it.
    pub(crate) fn warn(&mut self, e: &Error) {
        let line = e.line();
        if self.is_new(&line) {
            tracing::warn!("{line}");
        }
    }

    /// Notes a success. Returns whether it follows a failure.
    pub(crate) fn are_over(&mut self) -> bool {
        let had_one = self.tries > 0;
        *self = Obstacles::default();
        had_one
    }

    /// Returns the failed tries since the last success.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// Returns the time before the next try. A part of it is random, since all nodes meet the same API server.
    pub(crate) fn pause(&self) -> Duration {
        let doubled = PAUSE.0 * 2_u32.saturating_pow(self.tries.saturating_sub(1).min(16));
        let most = doubled.min(PAUSE.1);
        let random = RandomState::new().hash_one(self.tries) % 256;
        most - most / 1024 * u32::try_from(random).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_each_obstacle_once() {
        let mut obstacles = Obstacles::default();
        assert!(obstacles.is_new("a") && !obstacles.is_new("a") && obstacles.is_new("b"));
        assert!(!obstacles.is_new("a"));
        assert!(obstacles.are_over() && !obstacles.are_over());
        assert!(obstacles.is_new("a"));
        let lines = (0..100).filter(|at| obstacles.is_new(&at.to_string()));
        assert_eq!(lines.count(), MAX_LINES - 1);
    }

    #[test]
    fn pauses_grow_to_their_limit() {
        let mut obstacles = Obstacles::default();
        for most in [1, 2, 4, 8, 16, 30, 30] {
            obstacles.is_new("a");
            let (pause, most) = (obstacles.pause(), Duration::from_secs(most));
            assert!(pause <= most && pause >= most * 7 / 10, "{pause:?}");
        }
    }
}
