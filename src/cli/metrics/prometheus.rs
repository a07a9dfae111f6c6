//! Writes families in Prometheus' text format 0.0.4, which knows neither infos, units nor times of creation. One line
//! that it does not know loses a whole file of node_exporter.

use super::family::{Families, Type, Value};
use super::text::{bound, number, series};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub fn write(families: &Families) -> String {
    let mut out = String::new();
    for family in families.iter() {
        let of = family.definition;
        let (suffix, kind) = match of.kind {
            Type::Gauge => ("", "gauge"),
            Type::Info => ("_info", "gauge"),
            Type::Counter => ("_total", "counter"),
            Type::Histogram => ("", "histogram"),
        };
        out.push_str(&format!("# HELP {}{suffix} {}\n", of.name, of.help));
        out.push_str(&format!("# TYPE {}{suffix} {kind}\n", of.name));
        for sample in &family.samples {
            let line = |suffix: &str, extra: Option<(&str, &str)>, value: &str| {
                series(family, suffix, &sample.labels, extra, value)
            };
            match &sample.value {
                Value::Number(value) | Value::Counter(value) => {
                    out.push_str(&line(suffix, None, &number(*value)));
                }
                Value::Histogram(histogram) => {
                    for (le, count) in histogram.buckets() {
                        let le = bound(le);
                        out.push_str(&line("_bucket", Some(("le", &le)), &count.to_string()));
                    }
                    out.push_str(&line("_sum", None, &number(histogram.sum)));
                    out.push_str(&line("_count", None, &histogram.count().to_string()));
                }
            }
        }
    }
    out
}
