//! A figure beside its bar, and the table.

use std::fmt::Write;
use std::time::Duration;

pub struct Figure {
    what: String,
    value: f64,
    /// The most that is good.
    bar: Option<f64>,
    unit: &'static str,
}

impl Figure {
    pub fn new(what: &str, value: f64, bar: f64, unit: &'static str) -> Figure {
        Figure {
            bar: Some(bar),
            ..Figure::without_bar(what, value, unit)
        }
    }

    pub fn without_bar(what: &str, value: f64, unit: &'static str) -> Figure {
        Figure {
            what: what.to_owned(),
            value,
            bar: None,
            unit,
        }
    }

    /// Returns a percentile of times, in ms.
    pub fn of(what: &str, times: &[Duration], percent: usize, bar: f64) -> Figure {
        let what = format!("{what}, p{percent}");
        Figure::new(&what, percentile(times, percent), bar, "ms")
    }

    fn row(&self) -> String {
        let text = |value: f64| match value {
            value if value != 0.0 && value.abs() < 10.0 => format!("{value:.2}"),
            value => format!("{value:.0}"),
        };
        let (share, bar) = match self.bar {
            Some(0.0) => ("–".to_owned(), format!("0 {}", self.unit)),
            Some(bar) => (
                format!("{:.2}", self.value / bar),
                format!("{} {}", text(bar), self.unit),
            ),
            None => ("–".to_owned(), "–".to_owned()),
        };
        let value = format!("{} {}", text(self.value), self.unit);
        let cells = [&self.what[..], &share, value.trim(), bar.trim()];
        format!("| {} |", cells.join(" | "))
    }
}

pub fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = (times.len() - 1) * percent / 100;
    times[at].as_secs_f64() * 1e3
}

/// Returns the table in Markdown.
pub fn table(figures: &[Figure]) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut out = String::from("| figure | part of the bar | value | bar |\n");
    out.push_str("| --- | ---: | ---: | ---: |\n");
    for figure in figures {
        writeln!(out, "{}", figure.row()).expect("a text");
    }
    writeln!(out, "\nThe machine has {cores} cores.").expect("a text");
    out
}
