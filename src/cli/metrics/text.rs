//! Prometheus' text format 0.0.4: the one that both a scrape and node_exporter's textfile collector read. One line that it
//! does not know loses a whole file of node_exporter.

use runmig_lease::counters::{BOUNDS_MS, Distribution};
use runmig_lease::error::is_hidden;
use runmig_lease::framed::sha256;
use std::collections::BTreeSet;
use std::fmt::{Display, Write};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The promise about a family. `table` declares all of them.
pub struct Definition {
    pub name: &'static str,
    /// `gauge`, `counter` or `histogram`.
    pub kind: &'static str,
    /// The names of the labels, in the order of their values.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// The families of an exposition, each once. A family without a series is absent.
#[derive(Default)]
pub struct Families {
    /// Each family with its lines, in the order of the first series.
    lines: Vec<(&'static str, String)>,
    series: BTreeSet<(&'static str, String)>,
}

impl Families {
    /// Adds a gauge or a counter.
    pub fn add(&mut self, of: &'static Definition, labels: &[&str], value: f64) {
        if let Some((labels, out)) = self.begin(of, labels) {
            line(out, of.name, &labels, value);
        }
    }

    /// Adds a gauge or a counter, if its value is known.
    pub fn known(&mut self, of: &'static Definition, labels: &[&str], value: Option<u64>) {
        if let Some(value) = value {
            self.add(of, labels, value as f64);
        }
    }

    /// Adds a constant 1 whose labels carry the information.
    pub fn info(&mut self, of: &'static Definition, labels: &[&str]) {
        self.add(of, labels, 1.0);
    }

    pub fn histogram(&mut self, of: &'static Definition, labels: &[&str], times: &Distribution) {
        let Some((labels, out)) = self.begin(of, labels) else {
            return;
        };
        let bounds = BOUNDS_MS.iter().map(|ms| (*ms as f64 / 1000.0).to_string());
        let mut up_to: u64 = 0;
        for (le, count) in bounds.chain(["+Inf".to_owned()]).zip(times.classes) {
            up_to = up_to.saturating_add(count);
            let labels = format!("{labels},le=\"{le}\"");
            line(out, &format!("{}_bucket", of.name), &labels, up_to);
        }
        let sum = times.sum.as_secs_f64();
        line(out, &format!("{}_sum", of.name), &labels, sum);
        line(out, &format!("{}_count", of.name), &labels, up_to);
    }

    /// Begins a series: returns its labels as text, and the lines of its family. A second one with the same labels would
    /// make the whole exposition invalid, so the first stays.
    fn begin(&mut self, of: &'static Definition, labels: &[&str]) -> Option<(String, &mut String)> {
        debug_assert_eq!(of.labels.len(), labels.len(), "{}", of.name);
        let label = |(name, value): (&&str, &&str)| format!("{name}=\"{}\"", escaped(&safe(value)));
        let labels: Vec<String> = of.labels.iter().zip(labels).map(label).collect();
        let labels = labels.join(",");
        if !self.series.insert((of.name, labels.clone())) {
            return None;
        }
        let known = self.lines.iter().position(|(name, _)| *name == of.name);
        let at = known.unwrap_or_else(|| {
            let (name, help, kind) = (of.name, of.help, of.kind);
            let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            self.lines.push((name, head));
            self.lines.len() - 1
        });
        Some((labels, &mut self.lines[at].1))
    }

    pub fn text(&self) -> String {
        self.lines.iter().map(|(_, lines)| lines.as_str()).collect()
    }
}

fn line(out: &mut String, name: &str, labels: &str, value: impl Display) {
    let labels = match labels {
        "" => String::new(),
        labels => format!("{{{labels}}}"),
    };
    let _ = writeln!(out, "{name}{labels} {value}");
}

/// Escapes the characters that would end a value.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\");
    value.replace('"', "\\\"").replace('\n', "\\n")
}

/// The longest value of a label, in bytes, before its hash. Names of Kubernetes have at most 253.
const LONGEST: usize = 256;

/// Returns a value that a terminal shows as it is, of bounded length, since pods and containers choose their names.
/// Different values stay different: a changed one ends with the start of its hash.
fn safe(text: &str) -> String {
    let is_hidden = |c: char| c != '\n' && is_hidden(c);
    if text.len() <= LONGEST && !text.chars().any(is_hidden) {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        let shown = match is_hidden(c) {
            true => c.escape_unicode().to_string(),
            false => c.to_string(),
        };
        if out.len() + shown.len() > LONGEST {
            break;
        }
        out.push_str(&shown);
    }
    out.push('~');
    out.extend(sha256(text.as_bytes()).chars().take(16));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::metrics::table;
    use std::time::Duration;

    #[test]
    fn keeps_first_of_equal_series() {
        let mut families = Families::default();
        for (kind, value) in [("slice", 1.0), ("slice", 2.0), ("share", 3.0)] {
            families.add(&table::WAITING, &[kind, ""], value);
        }
        let text = families.text();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let wanted = [
            "runmig_waiting{kind=\"slice\",GPU_I_PROFILE=\"\"} 1",
            "runmig_waiting{kind=\"share\",GPU_I_PROFILE=\"\"} 3",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn buckets_add_up() {
        let mut times = Distribution {
            sum: Duration::from_millis(4500),
            ..Distribution::default()
        };
        (times.classes[0], times.classes[7], times.classes[14]) = (2, 3, u64::MAX);
        let mut families = Families::default();
        families.histogram(&table::RELEASE_SECONDS, &["slice"], &times);
        let text = families.text();
        for (series, value) in [
            ("_bucket{kind=\"slice\",le=\"0.005\"}", "2"),
            ("_bucket{kind=\"slice\",le=\"1\"}", "5"),
            ("_bucket{kind=\"slice\",le=\"300\"}", "5"),
            ("_bucket{kind=\"slice\",le=\"+Inf\"}", &u64::MAX.to_string()),
            ("_sum{kind=\"slice\"}", "4.5"),
        ] {
            let line = format!("runmig_release_seconds{series} {value}\n");
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn values_stay_different() {
        for name in ["", "team-a", "a\"b\\c\nd", "größe", &"x".repeat(LONGEST)] {
            assert_eq!(safe(name), name);
        }
        let long = "ä".repeat(32 << 10);
        let (one, other) = (safe(&format!("{long}1")), safe(&format!("{long}2")));
        assert!(one.len() < LONGEST + 20 && other.len() < LONGEST + 20);
        assert_ne!(one, other);
        let (control, written) = (safe("a\u{1b}[2J"), safe("a\\u{1b}[2J"));
        assert_ne!(control, written);
        assert!(!control.chars().any(is_hidden), "{control:?}");
    }
}
