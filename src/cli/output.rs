//! Prints tables for people, and one object in Kubernetes' form for programs.

use super::json;
use clap::ValueEnum;
use runmig_lease::error::{Error, is_hidden, printable};
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::iter::repeat_n;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Table,
    Json,
}

/// The most characters of a line where a verb has a form for longer ones.
pub const WIDTH: usize = 100;
/// The characters that a column keeps.
const LEAST: usize = 12;

/// The value of `--output`. Only leases have more forms than [`Format`].
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
    Wide,
    Name,
}

/// Prints one object for programs.
pub fn json(kind: &'static str, fields: &impl Serialize) {
    line(&inert(&json::text(kind, fields)));
}

/// Prints one object for programs, on a line of its own.
pub fn json_line(kind: &'static str, fields: &impl Serialize) {
    line(&inert(&json::line(kind, fields)));
}

/// Escapes the characters that a terminal obeys. JSON escapes only the first 32 control characters. A
/// terminal obeys more (U+009B begins the same sequences as ESC and a bracket), and shows some text
/// backwards. Outside of strings, JSON has none of these characters.
fn inert(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_hidden(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Prints a table.
pub fn table(head: &[&str], rows: &[Vec<String>]) {
    line(&table_lines(head, rows, 3, usize::MAX).join("\n"));
}

/// Cuts a text to a number of characters, and ends a cut one with `…`.
pub fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Returns the lines of a table with columns as wide as their cells. In a table with longer lines than `most` the widest
/// columns are cut. Cells hold text of others, so it escapes every character that controls a terminal.
pub fn table_lines(head: &[&str], rows: &[Vec<String>], gap: usize, most: usize) -> Vec<String> {
    let head_row: Vec<String> = head.iter().map(ToString::to_string).collect();
    let inert = |row: &Vec<String>| row.iter().map(|cell| printable(cell)).collect();
    let rows: Vec<Vec<String>> = [&head_row].into_iter().chain(rows).map(inert).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..head.len()).map(width).collect();
    while widths.iter().sum::<usize>() + gap * (widths.len() - 1) > most {
        match widths.iter_mut().max() {
            Some(widest) if *widest > LEAST => *widest -= 1,
            _ => break,
        }
    }
    let show = |cells: &Vec<String>| {
        let mut out = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            let cell = cut(cell, *width);
            out.push_str(&cell);
            out.extend(repeat_n(' ', width + gap - cell.chars().count()));
        }
        out.trim_end().to_owned()
    };
    rows.iter().map(show).collect()
}

/// Returns a cell's text, or a dash for none.
pub fn dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
}

/// Prints a line. A closed pipe (`migctl list | head -1`) is no error. A full disk is an error: a reader
/// would take the printed part for all.
pub fn line(text: &str) {
    self::text(&format!("{text}\n"));
}

/// Prints a text as it is, with the same care.
pub fn text(text: &str) {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let e = Error::new("cannot write to standard output").caused_by(e);
            eprint(&e.line());
            std::process::exit(1);
        }
        _ => {}
    }
}

/// Prints a line to standard error, if that is still open.
pub fn eprint(text: &str) {
    let _ = writeln!(std::io::stderr(), "migctl: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_widest_columns() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let long = "ä".repeat(80);
        let rows = [row(["4f2a9c1d03be", &long, "x"]), row(["a", "b", &long])];
        let lines = table_lines(&["ID", "NAME", "REQUEST"], &rows, 2, 60);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 60),
            "{lines:?}"
        );
        assert!(
            lines[1].starts_with("4f2a9c1d03be  ääää") && lines[1].contains('…'),
            "{lines:?}"
        );
        assert!(lines[2].ends_with("ä…"), "{lines:?}");
        let whole = table_lines(&["ID", "NAME", "REQUEST"], &rows, 2, usize::MAX);
        assert!(
            whole[1].contains(&long) && !whole[1].contains('…'),
            "{whole:?}"
        );
        let never = table_lines(
            &["IDENTIFICATION"],
            &[vec!["0123456789abcdef".to_owned()]],
            2,
            1,
        );
        assert_eq!(never, ["IDENTIFICAT…", "0123456789a…"]);
    }

    #[test]
    fn json_escapes_terminal_sequences() {
        let said = "\u{9b}2J \u{1b}[2J \u{202e}gpj \u{7f} é\n";
        let text = inert(&serde_json::to_string_pretty(&[said]).unwrap());
        assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [said]);
    }
}
