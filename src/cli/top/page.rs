//! The page: a pure function of the facts, the choices of the user and the size of the terminal.

use super::events;
use super::facts::Facts;
use super::gpus::{self, Detail};
use super::table::{Layout, cut, rows};
use super::view::View;
use crate::cli::list::{QUEUE, waits};
use crate::cli::output::table_lines;
use runmig_lease::error::printable;
use runmig_lease::model::Timestamp;
use std::time::SystemTime;

/// The size of a terminal in characters. None is as much as needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub rows: Option<usize>,
    pub columns: Option<usize>,
}

impl Size {
    /// The size for a file or a pipe.
    pub const UNLIMITED: Size = Size {
        rows: None,
        columns: None,
    };
}

/// The meaning of a line, which a terminal with colours shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Head,
    Alarm,
}

/// A line of the page, without any character that a terminal obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub style: Style,
}

/// The page, and the part of the leases that it shows.
#[derive(Default)]
pub struct Page {
    pub lines: Vec<Line>,
    /// The number of chosen leases, and of the visible ones among them.
    pub leases: usize,
    pub visible: usize,
    /// The first visible lease.
    pub offset: usize,
}

/// The most queued requests, and the most complaints, beside the leases of a terminal.
const MOST_WAITING: usize = 3;
const MOST_COMPLAINTS: usize = 2;
/// The keys, in the last line of a terminal.
const KEYS: &str = "q quit, arrows scroll, < > order, r reverse, g n k choose";

/// Draws the page. A terminal gets as many lines as it has rows at most.
pub fn page(facts: &Facts, view: &View, size: Size, now: SystemTime) -> Page {
    let rows = rows(facts, view, now);
    let layout = Layout::of(&rows, size.columns);
    let mut lines = vec![(title(facts, view, rows.len(), now), Style::Head)];
    let mut bottom = Vec::new();
    let mut left = usize::MAX;
    if let Some(height) = size.rows {
        let complaints = facts.complaints.iter().take(MOST_COMPLAINTS);
        lines.extend(complaints.map(|text| (text.clone(), Style::Alarm)));
        // Beside the title stand the heading of the leases, a third of the height for them, and the keys.
        let for_leases = (height / 3).clamp(1, rows.len().max(1));
        left = height.saturating_sub(lines.len() + 2 + for_leases);
    }
    let is_terminal = size.rows.is_some();
    let queue = queue(
        facts,
        if is_terminal {
            MOST_WAITING
        } else {
            usize::MAX
        },
        now,
    );
    let queue = section(queue, &mut left);
    lines.extend(section(gpus(facts, view, left), &mut left));
    lines.extend(queue);
    let events = events::lines(&facts.events, events::MOST);
    lines.extend(section(events, &mut left));
    lines.push((layout.head(), Style::Head));
    let visible = match size.rows {
        Some(height) => height.saturating_sub(lines.len() + 1),
        None => usize::MAX,
    };
    let offset = view.offset.min(rows.len().saturating_sub(visible));
    let shown = rows.iter().skip(offset).take(visible);
    let visible = shown.len();
    if rows.is_empty() {
        lines.push(("no leases".to_owned(), Style::Plain));
    }
    lines.extend(shown.map(|row| {
        let style = if row.is_alarming {
            Style::Alarm
        } else {
            Style::Plain
        };
        (layout.row(row), style)
    }));
    if let Some(height) = size.rows {
        let of = format!("{}-{} of {}", offset + 1, offset + visible, rows.len());
        let of = if rows.is_empty() {
            String::new()
        } else {
            format!("{of}; ")
        };
        bottom.push((format!("{of}{KEYS}"), Style::Head));
        let above = height.saturating_sub(bottom.len()).max(1);
        lines.truncate(above);
        lines.resize(above, (String::new(), Style::Plain));
        lines.extend(bottom);
        lines.truncate(height);
    }
    let columns = size.columns.unwrap_or(usize::MAX);
    let inert = |(text, style): (String, Style)| Line {
        text: cut(&printable(&text), columns),
        style,
    };
    Page {
        lines: lines.into_iter().map(inert).collect(),
        leases: rows.len(),
        visible,
        offset,
    }
}

fn title(facts: &Facts, view: &View, leases: usize, now: SystemTime) -> String {
    let inventory = &facts.inventory;
    let count =
        |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    // Without the driver the number of GPUs is not known.
    let gpus = match inventory.snapshot.gpus.len() {
        0 => String::new(),
        n => format!("{}, ", count(n, "GPU", "GPUs")),
    };
    let mut title = format!(
        "migctl top {}: {gpus}{}, {} waiting, by {}",
        Timestamp::seconds(now)
            .as_str()
            .split('T')
            .next_back()
            .unwrap_or_default(),
        count(leases, "lease", "leases"),
        inventory.waiting.len(),
        view.sort.head()
    );
    if view.reverse {
        title.push_str(" reversed");
    }
    let chosen = view.filter.words();
    if !chosen.is_empty() {
        title.push_str(&format!(", only {chosen}"));
    }
    title
}

/// Draws the GPUs with the most detail that fits.
fn gpus(facts: &Facts, view: &View, left: usize) -> Vec<String> {
    let mut drawn = Vec::new();
    for detail in Detail::ALL {
        drawn = gpus::lines(facts, view, detail);
        if drawn.len() < left {
            break;
        }
    }
    drawn
}

fn queue(facts: &Facts, most: usize, now: SystemTime) -> Vec<String> {
    let waiting = &facts.inventory.waiting;
    if waiting.is_empty() {
        return Vec::new();
    }
    let rows = waiting.iter().take(most).map(|w| waits(w, now));
    let mut lines = table_lines(&QUEUE, &rows.collect::<Vec<_>>());
    if waiting.len() > most {
        lines.push(more(waiting.len() - most));
    }
    lines
}

fn more(n: usize) -> String {
    format!("… {n} more")
}

/// Returns a part of the page with an empty line behind it, cut to the lines that are left. A part of two lines would
/// tell nothing.
fn section(mut lines: Vec<String>, left: &mut usize) -> Vec<(String, Style)> {
    if lines.is_empty() || *left < 3 {
        return Vec::new();
    }
    if lines.len() >= *left {
        let kept = *left - 2;
        let cut = lines.len() - kept;
        lines.truncate(kept);
        lines.push(more(cut));
    }
    lines.push(String::new());
    *left -= lines.len().min(*left);
    lines.into_iter().map(|text| (text, Style::Plain)).collect()
}

#[cfg(test)]
mod tests;
