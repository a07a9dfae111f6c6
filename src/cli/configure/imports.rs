//! The files that containerd's main file imports.

use super::file::Change;
use super::{Task, table};
use crate::spec::clean;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::paths;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Returns containerd's main file and all that it and its imports import, in the order in which containerd reads them after
/// the changes. Each file counts once.
pub fn all(task: &Task<'_>, changes: &[Change], main: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut pending = VecDeque::from([main.to_owned()]);
    while let Some(file) = pending.pop_front() {
        if found.contains(&file) {
            continue;
        }
        let text = task.after(changes, &file)?.unwrap_or_default();
        let patterns = table::parse(&text).and_then(|table| table::strings(&table, "imports"));
        for pattern in patterns.context(|| format!("read {}", file.display()))? {
            let pattern = beside(&file, &pattern);
            if !is_understood(&pattern) {
                return Err(Error::new(format!(
                    "cannot follow the imports of {}: migctl does not know the pattern {}",
                    file.display(),
                    pattern.display()
                )));
            }
            pending.extend(matching(task, changes, &pattern));
        }
        found.push(file);
    }
    Ok(found)
}

/// Returns the path of an import, which may be relative to the file.
pub fn beside(file: &Path, pattern: &str) -> PathBuf {
    clean(file.parent().unwrap_or(Path::new("/")).join(pattern))
}

/// Returns the files that match a pattern, sorted.
fn matching(task: &Task<'_>, changes: &[Change], pattern: &Path) -> BTreeSet<PathBuf> {
    let dir = pattern.parent().unwrap_or(Path::new("/"));
    let entries = paths::entries(&task.on_disk(dir));
    let paths = entries.filter_map(|entry| Some(dir.join(entry.file_name()?)));
    let paths = paths.chain(changes.iter().map(|change| change.path.clone()));
    paths.filter(|path| matches(pattern, path)).collect()
}

/// Returns whether a path matches a pattern of Go's Match with at most one `*` in the file's name. Other patterns
/// match nothing: containerd reads a file that is imported twice once.
pub fn matches(pattern: &Path, path: &Path) -> bool {
    let (Some(pattern_name), Some(name)) = (pattern.file_name(), path.file_name()) else {
        return false;
    };
    let (pattern_name, name) = (pattern_name.to_string_lossy(), name.to_string_lossy());
    pattern.parent() == path.parent()
        && match pattern_name.split_once('*') {
            None => pattern_name == name,
            Some((head, tail)) => {
                !tail.contains('*')
                    && name.len() >= head.len() + tail.len()
                    && name.starts_with(head)
                    && name.ends_with(tail)
            }
        }
}

/// Returns whether `matches` finds all that Go's Match would find.
fn is_understood(pattern: &Path) -> bool {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let dir = pattern.parent().unwrap_or(Path::new("/")).to_string_lossy();
    name.matches('*').count() <= 1
        && !name.contains(['?', '[', '\\'])
        && !dir.contains(['*', '?', '[', '\\'])
}
