//! A file for node_exporter. The collector reads names that end in `.prom`, at any moment, so the text goes into a
//! hidden file beside it that replaces the old one in a single step.

use runmig_lease::error::{Context, Error, Result};
use runmig_lease::{effect, files, trust};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest wait for another writer, which takes a moment unless it is stopped.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const GAP: Duration = Duration::from_millis(20);

/// The place of a file.
pub struct Textfile {
    path: PathBuf,
    /// The folder, whose lock a writer has.
    folder: File,
    /// The file until it is whole.
    draft: PathBuf,
}

impl Textfile {
    /// Checks the place before any work is done for it.
    ///
    /// # Errors
    /// A name without `.prom`, a folder that is missing or that others can write to, and anything but a file in the place.
    pub fn at(path: &Path) -> Result<Textfile> {
        check(path).context(|| format!("write {}", path.display()))
    }

    /// Replaces the file. After a kill the old one is still whole.
    pub fn replace(&self, text: &str) -> Result<()> {
        let what = || format!("write {}", self.path.display());
        lock(&self.folder).context(what)?;
        let written = write(&self.draft, text.as_bytes());
        files::put(&self.draft, &self.path, written).context(what)
    }
}

fn check(path: &Path) -> Result<Textfile> {
    let name = path.file_name().unwrap_or_default();
    if !name.as_bytes().ends_with(b".prom") || name.as_bytes().starts_with(b".") {
        return Err(Error::new("its name does not end in .prom")
            .hint("name it runmig.prom, since node_exporter reads no other names"));
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let what = || format!("open its folder {}", folder.display());
    let folder = match std::fs::canonicalize(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => Err(Error::new("it is not there").hint(
            "install node_exporter, or name the folder of its --collector.textfile.directory",
        )),
        folder => folder.context(|| "find it"),
    }
    .context(what)?;
    trust::folder(&folder).context(what)?;
    // A path that changes later does not lead elsewhere: only root can write to a folder of this one.
    let path = folder.join(name);
    if std::fs::symlink_metadata(&path).is_ok_and(|there| !there.is_file()) {
        return Err(Error::new("it is not a regular file").hint("name a regular file"));
    }
    let mut draft = OsString::from(".");
    draft.push(name);
    draft.push(".new");
    Ok(Textfile {
        draft: folder.join(draft),
        folder: File::open(&folder).context(what)?,
        path,
    })
}

/// Waits for the end of another writer.
fn lock(folder: &File) -> Result<()> {
    let end = Instant::now() + LONGEST_WAIT;
    while !effect::try_lock(folder).context(|| "lock its folder")? {
        if Instant::now() > end {
            return Err(Error::new("another process is writing it")
                .hint("let it end, or end it if it is stopped"));
        }
        std::thread::sleep(GAP);
    }
    Ok(())
}

fn write(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut out = options.custom_flags(libc::O_NOFOLLOW).open(draft)?;
    out.write_all(bytes)?;
    // No umask of the caller hides the file from node_exporter.
    out.set_permissions(Permissions::from_mode(0o644))
}
