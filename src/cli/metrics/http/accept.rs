//! The text format that a reader prefers.

use crate::cli::metrics::TextFormat;

/// Returns the format with the highest quality in an `Accept` header. Without one it is the older format, which every
/// reader knows.
pub fn format(accept: Option<&str>) -> TextFormat {
    let accept = accept.unwrap_or_default();
    let quality = |kind: &str, versions: &[&str]| {
        let of_range = accept
            .split(',')
            .filter_map(|range| quality_of(range, kind, versions));
        of_range.fold(0.0, f64::max)
    };
    let openmetrics = quality("application/openmetrics-text", &["1.0.0", "0.0.1"]);
    match openmetrics > 0.0 && openmetrics >= quality("text/plain", &["0.0.4"]) {
        true => TextFormat::Openmetrics,
        false => TextFormat::Prometheus,
    }
}

/// Returns the quality of a media range for a media type in one of these versions. `*/*` says nothing about a format.
fn quality_of(range: &str, kind: &str, versions: &[&str]) -> Option<f64> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    let mut quality = 1.0;
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name.trim().to_ascii_lowercase().as_str() {
            "q" => quality = value.trim().parse().ok()?,
            "version" if !versions.contains(&value.trim().trim_matches('"')) => return None,
            _ => {}
        }
    }
    Some(quality)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMETHEUS_2: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
                                q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const PROMETHEUS_3: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                                application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;\
                                escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    #[test]
    fn quality_selects_format() {
        for accept in [PROMETHEUS_2, PROMETHEUS_3, "Application/OpenMetrics-Text"] {
            assert_eq!(format(Some(accept)), TextFormat::Openmetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/html",
            "text/plain;version=0.0.4",
            "application/openmetrics-text;q=0.4, text/plain;q=0.5",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=high",
        ] {
            assert_eq!(format(Some(accept)), TextFormat::Prometheus, "{accept}");
        }
        assert_eq!(format(None), TextFormat::Prometheus);
    }
}
