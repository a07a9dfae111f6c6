//! The last events, as lines of the page.

use runmig_lease::config::Config;

/// The most events that a page shows.
pub const MOST: usize = 5;

/// Returns the last events, a line each. No reader of events exists yet, so the page has none.
pub fn last(_config: &Config) -> Vec<String> {
    Vec::new()
}

/// Draws the last of these events, with a heading. Draws nothing without events.
pub fn lines(events: &[String], most: usize) -> Vec<String> {
    let shown = &events[events.len().saturating_sub(most)..];
    match shown {
        [] => Vec::new(),
        shown => [&["LAST EVENTS".to_owned()], shown].concat(),
    }
}
