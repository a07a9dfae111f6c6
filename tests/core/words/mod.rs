//! Checks the words of documents, comments, errors and test names against CONTRIBUTING.md, rules 2, 6
//! and 8.
//!
//! A sentence that begins with a relative clause ("Who waits …", "Of several …") names its actor
//! late, and its reader has to parse it twice. An error without a verb ("cut off") does not tell its
//! reader the failure. The rules look only at words, so they miss much, but they need few exceptions
//! for texts that follow the style.

mod errors;
mod sentences;
mod test_names;

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of text by others, or of bytes: seeds, downloads, builds.
const FOREIGN: &[&str] = &[
    "target",
    ".git",
    "fuzz/seeds",
    "fuzz/corpus",
    "fuzz/artifacts",
];

/// The documents, sources and scripts of the repository, relative to it.
fn files() -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![PathBuf::new()], Vec::new());
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(root().join(&at)).unwrap() {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            let skipped = FOREIGN.iter().any(|folder| path.starts_with(folder));
            let kind = entry.file_type().unwrap();
            if skipped || kind.is_symlink() {
                continue;
            } else if kind.is_dir() {
                open.push(path);
            } else if is_ours(&path) {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 100, "only {} files are found", found.len());
    found.sort();
    found
}

fn is_ours(path: &Path) -> bool {
    match path.extension() {
        Some(extension) => extension == "rs" || extension == "md",
        None => fs::read(root().join(path)).is_ok_and(|bytes| bytes.starts_with(b"#!")),
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
