//! A file that a verb of layouts writes.

use runmig_lease::error::{Context, Error, Result};
use runmig_lease::files;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes a file, or replaces it in a single step. The draft is new, so no link in an open folder leads elsewhere.
///
/// # Errors
/// Anything but a file in its place, and a draft of another process.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    write(path, text).context(|| format!("write {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Err(Error::new("it is no regular file").hint("name a file")),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e).context(|| "look at it"),
    }
    let name = path
        .file_name()
        .ok_or_else(|| Error::new("it names no file").hint("name a file"))?;
    let mut draft = std::ffi::OsString::from(".");
    draft.push(name);
    draft.push(format!(".new-{}", unique()));
    let draft = path.with_file_name(draft);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    let opened = options.open(&draft);
    let mut file = opened.context(|| format!("create {}", draft.display()))?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    files::put(&draft, path, written)
        .context(|| format!("write its new version {}", draft.display()))
}

/// Returns a text that no other draft has, neither one of a process with the same number in a container nor one that a
/// kill left over.
fn unique() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!(
        "{}-{}",
        std::process::id(),
        now.map_or(0, |now| now.as_nanos())
    )
}
