//! The annotations that a run of configure adds to a handler of an earlier version.

use runmig_lease::request::PREFIXES;

/// Returns the note that names the added annotations of a handler. None without an earlier handler, or if it lacks none.
pub fn note(engine: &str, name: &str, before: Option<&str>, after: &str) -> Option<String> {
    let before = before?;
    let patterns = PREFIXES.map(|prefix| format!("{prefix}dev/*"));
    let is_added = |pattern: &&String| {
        let entry = format!("\"{pattern}\"");
        after.contains(&entry) && !before.contains(&entry)
    };
    let added: Vec<&str> = patterns
        .iter()
        .filter(is_added)
        .map(String::as_str)
        .collect();
    (!added.is_empty()).then(|| {
        format!(
            "{engine}: the handler {name} now also passes on {}",
            added.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_missing_annotations_alone() {
        let new = "a = [\"runmig.dev/*\", \"slice.runmig.dev/*\", \"share.runmig.dev/*\", \"gpu.runmig.dev/*\"]";
        let old = "a = [\"runmig.dev/*\", \"slice.runmig.dev/*\"]";
        let said = note("containerd 2", "x", Some(old), new);
        let told = "containerd 2: the handler x now also passes on share.runmig.dev/* and gpu.runmig.dev/*";
        assert_eq!(said.as_deref(), Some(told));
        assert_eq!(note("containerd 2", "x", Some(new), new), None);
        assert_eq!(note("containerd 2", "x", None, new), None);
    }
}
