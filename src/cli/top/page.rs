//! The page: a pure function of the facts, the choices of the user and the size of the terminal.

use crate::cli::draw;
use crate::cli::filter::Filter;
use crate::cli::list::{Order, QUEUE, age, born, holder_name, mib, order, portion, waits};
use crate::cli::output::{cut, dash, table_lines};
use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Size;
use ratatui::style::Style;
use ratatui::text::Line;
use runmig_lease::error::printable;
use runmig_lease::model::Timestamp;
use runmig_lease::store::{Entry, Lease};
use runmig_lease::{GpuState, Inventory, LeaseUse};
use std::time::SystemTime;

/// The machine at one moment.
#[derive(Default)]
pub struct Facts {
    pub inventory: Inventory,
    /// In the order of the snapshot.
    pub gpus: Vec<GpuState>,
    /// In the order of the inventory. Empty where nobody asked the driver.
    pub uses: Vec<LeaseUse>,
    /// Everything that could not be read, a line each.
    pub complaints: Vec<String>,
}

/// A column of the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    Holder,
    Kind,
    Profile,
    Gpu,
    Place,
    State,
    Age,
    Used,
    Procs,
}

const HEADS: [&str; 9] = [
    "HOLDER", "KIND", "PROFILE", "GPU", "PLACE", "STATE", "AGE", "USED", "PROCS",
];
/// The usual width of all columns but the first, which gets the rest of a terminal, and the least that it gets.
const OTHERS: usize = 63;
const SHORTEST_NAME: usize = 12;
/// The space between two columns.
const GAP: usize = 2;
/// The most complaints on a terminal.
const MOST_COMPLAINTS: usize = 2;
const KEYS: &str = "q quit, arrows scroll, < > order";

/// The choices of the user.
#[derive(clap::Args, Clone)]
pub struct View {
    #[command(flatten)]
    pub filter: Filter,
    /// The column that orders the leases
    #[arg(long, value_enum, default_value_t = Column::Gpu)]
    pub sort: Column,
    /// The first visible lease. A page may have fewer.
    #[arg(skip)]
    pub offset: usize,
}

impl View {
    /// Follows a key. Returns whether the user goes on.
    pub fn press(&mut self, key: KeyEvent, shown: &Page) -> bool {
        let last = shown.leases.saturating_sub(shown.visible);
        let step = shown.visible.max(1);
        let column = |by: usize| Column::value_variants()[(self.sort as usize + by) % HEADS.len()];
        match key.code {
            KeyCode::Char('q') => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Up => self.offset = self.offset.saturating_sub(1),
            KeyCode::Down => self.offset = (self.offset + 1).min(last),
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(step),
            KeyCode::PageDown => self.offset = (self.offset + step).min(last),
            KeyCode::Home => self.offset = 0,
            KeyCode::End => self.offset = last,
            KeyCode::Right | KeyCode::Char('>') => self.sort = column(1),
            KeyCode::Left | KeyCode::Char('<') => self.sort = column(HEADS.len() - 1),
            _ => {}
        }
        true
    }
}

/// The page, and the part of the leases that it shows.
#[derive(Debug, Default)]
pub struct Page {
    pub lines: Vec<Line<'static>>,
    pub leases: usize,
    pub visible: usize,
    /// The first visible lease.
    pub offset: usize,
}

/// Draws the page: for a terminal of this size as many lines as it has rows, else all.
pub fn page(facts: &Facts, view: &View, size: Option<Size>, now: SystemTime) -> Page {
    let size = size.map(|size| (usize::from(size.height), usize::from(size.width)));
    let (height, width) = size.unwrap_or((usize::MAX, usize::MAX));
    let rows = rows(facts, view, width, now);
    let table = table_lines(&HEADS, &rows, GAP, usize::MAX);
    let (head, alarm) = (Style::new().bold(), Style::new().red());
    let plain = |text| (text, Style::new());
    let mut lines = vec![(title(facts, view, rows.len(), now), head)];
    let mut left = usize::MAX;
    if size.is_some() {
        let complaints = facts.complaints.iter().take(MOST_COMPLAINTS);
        lines.extend(complaints.map(|text| (text.clone(), alarm)));
        // Beside the title stand the heading of the leases, a third of the height for them, and the keys.
        let for_leases = (height / 3).clamp(1, rows.len().max(1));
        left = height.saturating_sub(lines.len() + 2 + for_leases);
    }
    let above = above(facts, view, now).into_iter().take(left);
    lines.extend(above.map(plain));
    lines.push((table[0].clone(), head));
    let most = height.saturating_sub(lines.len() + 1);
    let offset = view.offset.min(rows.len().saturating_sub(most));
    let shown = rows.iter().zip(&table[1..]).skip(offset).take(most);
    let visible = shown.len();
    lines.extend(
        shown.map(|(row, text)| match row[Column::State as usize].as_str() {
            "quarantined" => (text.clone(), alarm),
            _ => plain(text.clone()),
        }),
    );
    if size.is_some() {
        lines.resize(height.saturating_sub(1).max(1), plain(String::new()));
        let (first, last) = (offset + visible.min(1), offset + visible);
        lines.push((format!("{first}-{last} of {}; {KEYS}", rows.len()), head));
        lines.truncate(height);
    }
    let inert = |(text, style): (String, Style)| Line::styled(printable(&text), style);
    Page {
        lines: lines.into_iter().map(inert).collect(),
        leases: rows.len(),
        visible,
        offset,
    }
}

fn title(facts: &Facts, view: &View, leases: usize, now: SystemTime) -> String {
    let only = view.filter.words();
    let is_read = facts.inventory.unread.is_none();
    let count = |n: usize| dash(is_read.then(|| n.to_string()));
    format!(
        "migctl top {}: leases {}, waiting {}, by {}{}{only}",
        Timestamp::seconds(now),
        count(leases),
        count(facts.inventory.waiting.len()),
        HEADS[view.sort as usize],
        if only.is_empty() { "" } else { ", only " },
    )
}

/// Draws what stands above the leases: the chosen GPUs, a line each, and the queue.
fn above(facts: &Facts, view: &View, now: SystemTime) -> Vec<String> {
    let world = &facts.inventory;
    let gpus = world.snapshot.gpus.iter().zip(&facts.gpus);
    let chosen = gpus.filter(|(gpu, _)| view.filter.has_gpu(gpu));
    let gpus = chosen.map(|(gpu, state)| draw::line(world, gpu, state));
    let mut lines: Vec<String> = gpus.chain([String::new()]).collect();
    let waiting: Vec<_> = world.waiting.iter().map(|w| waits(w, now)).collect();
    if !waiting.is_empty() {
        lines.extend(table_lines(&QUEUE, &waiting, GAP, usize::MAX));
        lines.push(String::new());
    }
    lines
}

/// Returns the cells of the chosen leases in the order of the view.
fn rows(facts: &Facts, view: &View, width: usize, now: SystemTime) -> Vec<Vec<String>> {
    // The entries begin with the leases, in the order of the uses.
    let uses = facts.uses.iter().copied();
    let uses = uses.chain(std::iter::repeat(LeaseUse::default()));
    let entries = facts.inventory.entries();
    let chosen = { entries.iter().zip(uses) }.filter(|(entry, _)| view.filter.has(entry));
    let width = width.saturating_sub(OTHERS).max(SHORTEST_NAME);
    let row = |(entry, used)| {
        let cells = cells(entry, used, width, now);
        (order_by(view.sort, entry, used, &cells), cells)
    };
    let mut rows: Vec<_> = chosen.map(row).collect();
    rows.sort();
    rows.into_iter().map(|(_, cells)| cells).collect()
}

fn cells(entry: &Entry, used: LeaseUse, width: usize, now: SystemTime) -> Vec<String> {
    let instance = entry.instance();
    let name = |lease: &Lease| cut(&holder_name(lease), width);
    let cells = [
        dash(entry.lease().map(name)),
        entry.shown().kind.word().to_owned(),
        portion(entry),
        instance.resource.gpu_index().to_string(),
        dash(instance.slice().map(|s| s.placement.to_string())),
        entry.shown_state().to_owned(),
        age(entry.created(), now),
        dash(used.used_bytes.map(mib)),
        dash(used.processes.map(|n| n.to_string())),
    ];
    cells.map(|cell| printable(&cell)).into()
}

fn order_by(by: Column, entry: &Entry, used: LeaseUse, cells: &[String]) -> Order {
    let (amount, text) = match by {
        Column::Gpu | Column::Place => (None, String::new()),
        Column::Age => (born(entry), String::new()),
        Column::Used => (used.used_bytes, String::new()),
        Column::Procs => (used.processes.map(|n| n as u64), String::new()),
        text => (None, cells[text as usize].clone()),
    };
    order(entry, amount, text)
}

#[cfg(test)]
mod tests;
