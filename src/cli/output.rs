//! Tables for people, one object in Kubernetes' form for programs.

use crate::error::printable;
use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;

pub const API_VERSION: &str = "runmig.dev/v1";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [T],
}

/// `kind` is `LeaseList`, `GpuList` …
pub fn json<T: Serialize>(kind: &'static str, items: &[T]) {
    let list = List {
        api_version: API_VERSION,
        kind,
        items,
    };
    let text = serde_json::to_string_pretty(&list).expect("only strings are keys");
    line(&text);
}

/// Columns as wide as what stands in them. Cells hold what others wrote, so nothing of a terminal's
/// language is let through.
pub fn table(head: &[&str], rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| printable(cell)).collect())
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|c| c.chars().count())
            .chain([head[column].len()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let show = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (cell, width) in cells.zip(&widths) {
            out.push_str(&format!("{cell:width$}   "));
        }
        line(out.trim_end());
    };
    show(&mut head.iter().copied());
    for row in &rows {
        show(&mut row.iter().map(String::as_str));
    }
}

/// A reader that has gone (`migctl list | head -1`) is no error.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
