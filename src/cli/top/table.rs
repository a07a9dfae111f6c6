//! The leases as rows, in order. It reads the words that all kinds of resources and holders have.

use super::columns::{Column, GAP, fit};
use super::facts::Facts;
use super::view::View;
use crate::cli::list::{age, holder_name, portion};
use runmig_lease::LeaseUse;
use runmig_lease::error::printable;
use runmig_lease::store::Entry;
use std::cmp::{Ordering, Reverse};
use std::time::SystemTime;

/// A lease, or an instance without one.
pub struct Row {
    cells: [String; 9],
    place: (u32, u32),
    created: Option<SystemTime>,
    used: LeaseUse,
    /// Whether it needs an administrator.
    pub is_alarming: bool,
}

/// Returns the chosen leases in the order of the view.
pub fn rows(facts: &Facts, view: &View, now: SystemTime) -> Vec<Row> {
    let entries = facts.inventory.entries();
    // The entries begin with the leases, in the order of the uses.
    let uses = facts.uses.iter().copied();
    let uses = uses.chain(std::iter::repeat(LeaseUse::default()));
    let chosen = { entries.iter().zip(uses) }.filter(|(entry, _)| view.filter.has(entry));
    let mut rows: Vec<Row> = chosen.map(|(entry, used)| row(entry, used, now)).collect();
    rows.sort_by(|a, b| {
        let order = a.compare(b, view.sort);
        if view.reverse { order.reverse() } else { order }
    });
    rows
}

fn row(entry: &Entry, used: LeaseUse, now: SystemTime) -> Row {
    let resource = &entry.instance().resource;
    let slice = resource.mig_slice();
    let state = entry.shown_state();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let cells = [
        or_dash(entry.lease().map(holder_name)),
        entry.shown().kind.to_owned(),
        portion(entry),
        resource.gpu_index().to_string(),
        or_dash(slice.map(|s| s.placement.to_string())),
        state.to_owned(),
        age(entry.created(), now),
        or_dash({ used.used_bytes }.map(|bytes| format!("{}Mi", bytes.div_ceil(1 << 20)))),
        or_dash(used.processes.map(|n| n.to_string())),
    ];
    Row {
        cells: cells.map(|cell| printable(&cell)),
        place: (resource.gpu_index(), slice.map_or(0, |s| s.placement.start)),
        created: entry.created().time(),
        used,
        is_alarming: state == "quarantined",
    }
}

impl Row {
    /// Compares two rows: text and places from the first, ages from the youngest, amounts from the largest.
    fn compare(&self, other: &Row, by: Column) -> Ordering {
        let text = |column: Column| self.cell(column).cmp(other.cell(column));
        let order = match by {
            Column::Gpu | Column::Place => Ordering::Equal,
            Column::Age => Reverse(self.created).cmp(&Reverse(other.created)),
            Column::Used => Reverse(self.used.used_bytes).cmp(&Reverse(other.used.used_bytes)),
            Column::Procs => Reverse(self.used.processes).cmp(&Reverse(other.used.processes)),
            Column::Holder | Column::Kind | Column::Profile | Column::State => text(by),
        };
        order
            .then(self.place.cmp(&other.place))
            .then_with(|| text(Column::Holder))
    }

    fn cell(&self, column: Column) -> &str {
        &self.cells[column as usize]
    }
}

/// The columns of a table, as wide as its rows and the terminal allow.
pub struct Layout(Vec<(Column, usize)>);

impl Layout {
    pub fn of(rows: &[Row], available: Option<usize>) -> Layout {
        let width = |column: Column| {
            let cells = rows.iter().map(|row| row.cell(column).chars().count());
            cells.chain([column.head().len()]).max().unwrap_or_default()
        };
        Layout(fit(Column::ALL.map(width), available.unwrap_or(usize::MAX)))
    }

    pub fn head(&self) -> String {
        self.line(|column| column.head())
    }

    pub fn row(&self, row: &Row) -> String {
        self.line(|column| row.cell(column))
    }

    fn line<'a>(&self, cell: impl Fn(Column) -> &'a str) -> String {
        let mut line = String::new();
        for (column, width) in &self.0 {
            let text = cut(cell(*column), *width);
            line.push_str(&format!("{text:width$}{:GAP$}", ""));
        }
        line.trim_end().to_owned()
    }
}

/// Returns the first characters of a text that is too long, with a sign of the rest.
pub fn cut(text: &str, width: usize) -> String {
    match text.chars().nth(width) {
        None => text.to_owned(),
        Some(_) if width == 0 => String::new(),
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
    }
}
