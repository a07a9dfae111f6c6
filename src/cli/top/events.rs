//! The last events, as lines of the page.

use runmig_lease::config::Config;
use runmig_lease::error::printable;

/// The most events that a page shows.
pub const MOST: usize = 5;

/// Returns the last events, a line each.
pub fn last(config: &Config) -> Vec<String> {
    let events = runmig_lease::events::last(config, MOST);
    events
        .iter()
        .map(|event| printable(&event.to_string()))
        .collect()
}

/// Draws the last of these events, with a heading. Draws nothing without events.
pub fn lines(events: &[String], most: usize) -> Vec<String> {
    let shown = &events[events.len().saturating_sub(most)..];
    match shown {
        [] => Vec::new(),
        shown => [&["LAST EVENTS".to_owned()], shown].concat(),
    }
}
