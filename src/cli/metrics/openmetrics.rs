//! Writes families in OpenMetrics 1.0.

use super::family::{Families, Family, Type, Unit, Value};
use super::text::{bound, number, series};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub fn write(families: &Families) -> String {
    let mut out = String::new();
    for family in families.iter() {
        head(&mut out, family);
        for sample in &family.samples {
            let line = |suffix: &str, extra: Option<(&str, &str)>, value: &str| {
                series(family, suffix, &sample.labels, extra, value)
            };
            match &sample.value {
                Value::Number(value) => {
                    let suffix = match family.definition.kind {
                        Type::Info => "_info",
                        _ => "",
                    };
                    out.push_str(&line(suffix, None, &number(*value)));
                }
                Value::Counter(total) => out.push_str(&line("_total", None, &number(*total))),
                Value::Histogram(histogram) => {
                    for (le, count) in histogram.buckets() {
                        let le = bound(le);
                        out.push_str(&line("_bucket", Some(("le", &le)), &count.to_string()));
                    }
                    out.push_str(&line("_count", None, &histogram.count().to_string()));
                    out.push_str(&line("_sum", None, &number(histogram.sum)));
                }
            }
        }
    }
    out.push_str("# EOF\n");
    out
}

/// The names here are those of families, without the suffixes of samples.
fn head(out: &mut String, family: &Family) {
    let of = family.definition;
    let kind = of.kind.word();
    out.push_str(&format!("# TYPE {} {kind}\n", of.name));
    if of.unit != Unit::None {
        out.push_str(&format!("# UNIT {} {}\n", of.name, of.unit.word()));
    }
    out.push_str(&format!("# HELP {} {}\n", of.name, of.help));
}
