//! The lines that both text formats have in common.

use super::family::{Family, Type};

impl Type {
    pub fn word(self) -> &'static str {
        match self {
            Type::Gauge => "gauge",
            Type::Info => "info",
            Type::Counter => "counter",
            Type::Histogram => "histogram",
        }
    }
}

/// Returns the line of a series: name, labels, value. `extra` is a label beside those of the sample.
pub fn series(
    family: &Family,
    suffix: &str,
    labels: &[String],
    extra: Option<(&str, &str)>,
    value: &str,
) -> String {
    let of = family.definition;
    let own = of
        .labels
        .iter()
        .copied()
        .zip(labels.iter().map(String::as_str));
    let pairs = own
        .chain(extra)
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    let pairs: Vec<String> = pairs.collect();
    let pairs = match pairs.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", pairs.join(",")),
    };
    format!("{}{suffix}{pairs} {value}\n", of.name)
}

/// Escapes the characters that would end a value.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\");
    value.replace('"', "\\\"").replace('\n', "\\n")
}

pub fn number(value: f64) -> String {
    value.to_string()
}

/// Returns the bound of a bucket in the form that OpenMetrics prescribes: `1.0`, `+Inf`.
pub fn bound(value: f64) -> String {
    match value.is_infinite() {
        true => "+Inf".to_owned(),
        false => format!("{value:?}"),
    }
}
