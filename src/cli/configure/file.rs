//! Reads files of engines with checks of their owners, and replaces them atomically.

use super::rewrite::Kept;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::paths::resolve;
use runmig_lease::{files, trust};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Longest configuration of an engine that migctl reads, in bytes.
const LIMIT: u64 = 4 << 20;

/// A planned change of a file. `None` stands for a missing file.
#[derive(Default)]
pub struct Change {
    /// The path as the engine names it, without `--root`.
    pub path: PathBuf,
    pub on_disk: PathBuf,
    pub before: Option<String>,
    pub after: Option<String>,
    /// The original that is kept beside a file with other content too.
    pub kept: Option<Kept>,
    /// Folders that go with the file, the deepest first.
    pub folders: Vec<PathBuf>,
}

/// Reads a file; `None` where it is missing. It follows links, but not out of the root.
pub fn read(file: &Path, root: &Path) -> Result<Option<String>> {
    let real = match fs::canonicalize(file) {
        Ok(real) => real,
        Err(e) if e.kind() == ErrorKind::NotFound && fs::symlink_metadata(file).is_err() => {
            // Root may make the file later.
            let real = resolve(file);
            below(&real, root)?;
            return trust::room_for(&real).map(|()| None);
        }
        Err(e) => return Err(Error::new("cannot follow its links").caused_by(e)),
    };
    below(&real, root)?;
    trust::read_to_string(&real, LIMIT).map(Some)
}

/// Checks that a path without links lies below the root.
pub fn below(real: &Path, root: &Path) -> Result<()> {
    if real.starts_with(root) {
        return Ok(());
    }
    let why = format!("it leads to {}, which is outside --root", real.display());
    Err(Error::new(why))
}

impl Change {
    pub fn changes(&self) -> bool {
        self.before != self.after
    }

    pub fn word(&self) -> &'static str {
        match (&self.before, &self.after) {
            (before, after) if before == after => "unchanged",
            (None, _) => "created",
            (_, None) => "removed",
            _ => "changed",
        }
    }

    pub fn diff(&self) -> String {
        let name = |side: &str, text: &Option<String>| match text {
            Some(_) => format!("{side}{}", self.path.display()),
            None => "/dev/null".to_owned(),
        };
        let before = self.before.as_deref().unwrap_or_default();
        let after = self.after.as_deref().unwrap_or_default();
        let (a, b) = (name("a", &self.before), name("b", &self.after));
        format!("--- {a}\n+++ {b}\n{}", diff(before, after))
    }

    /// Keeps the original before it replaces the file, and removes earlier originals afterwards.
    pub fn make(&self) -> Result<()> {
        let what = || format!("write {}", self.path.display());
        let beside = match (&self.kept, &self.after) {
            (Some(kept), Some(after)) => kept.text.as_ref().map(|text| (kept.beside(after), text)),
            _ => None,
        };
        if self.changes() {
            let keep = |(file, original): &(PathBuf, &String)| {
                let what = || format!("keep the original as {}", file.display());
                self.replace(file, original).context(what)
            };
            let done = { beside.iter().try_for_each(keep) }.and_then(|()| match &self.after {
                Some(text) => self.replace(&self.on_disk, text).context(what),
                None => self.remove().context(what),
            });
            if let (Err(_), Some((file, _))) = (&done, &beside) {
                let _ = fs::remove_file(file);
            }
            done?;
        }
        if let Some(kept) = &self.kept {
            let remove = |file: &PathBuf| match fs::remove_file(file) {
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
                removed => removed.context(|| format!("remove {}", file.display())),
            };
            let stays = beside.as_ref().map(|(file, _)| file.as_path());
            kept.stale(stays).iter().try_for_each(remove)?;
        }
        if self.after.is_none() {
            // One with other files stays.
            let remove = |folder| drop(fs::remove_dir(folder));
            self.folders.iter().for_each(remove);
        }
        Ok(())
    }

    /// Writes a file with the owner and mode of this one.
    fn replace(&self, file: &Path, text: &str) -> Result<()> {
        let parent = file.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o755).create(parent);
        made.context(|| "make its folder")?;
        let target = resolve(file);
        let dir = target.parent().unwrap_or(Path::new("/"));
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        // Not in a drop-in folder: CRI-O reads every file in it.
        let aside = match dir.extension().is_some_and(|e| e == "d") {
            true => dir.parent().unwrap_or(dir),
            false => dir,
        };
        let unfinished = aside.join(format!(".{name}.migctl-{}", std::process::id()));
        let written = { self.write(&unfinished, text) }
            .and_then(|()| self.as_it_was())
            .and_then(|()| fs::rename(&unfinished, &target).context(|| "rename the new file"));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written?;
        sync(dir)
    }

    /// Writes text into a new file with the owner and mode of this one.
    fn write(&self, unfinished: &Path, text: &str) -> Result<()> {
        let old = fs::metadata(&self.on_disk).ok();
        let _ = fs::remove_file(unfinished);
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(unfinished)
            .context(|| format!("make {}", unfinished.display()))?;
        out.write_all(text.as_bytes())
            .context(|| "write the new file")?;
        if let Some(old) = &old {
            let new = out.metadata().context(|| "look at the new file")?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                fchown(&out, Some(old.uid()), Some(old.gid())).context(|| "keep its owner")?;
            }
        }
        let mode = old.map_or(0o644, |old| old.mode() & 0o7777);
        out.set_permissions(fs::Permissions::from_mode(mode))
            .context(|| "keep its mode")?;
        out.sync_all().context(|| "sync the new file")
    }

    fn remove(&self) -> Result<()> {
        self.as_it_was()?;
        fs::remove_file(&self.on_disk).context(|| "remove the file")?;
        sync(self.on_disk.parent().unwrap_or(Path::new("/")))
    }

    /// Checks that no other process changed the file since migctl read it.
    fn as_it_was(&self) -> Result<()> {
        let now = match files::read(&self.on_disk, LIMIT) {
            Ok(bytes) => Some(bytes),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(Error::new("cannot read it again").caused_by(e)),
        };
        match now.as_deref() == self.before.as_deref().map(str::as_bytes) {
            true => Ok(()),
            false => Err(Error::new("another process changed the file meanwhile")
                .hint("run migctl configure again")),
        }
    }
}

fn sync(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .context(|| format!("sync {}", dir.display()))
}

/// The lines of context.
const AROUND: usize = 3;

/// Returns the lines that differ in one hunk, from the first change to the last.
pub fn diff(before: &str, after: &str) -> String {
    let [old, new] = [before, after].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old[same..].iter().rev().zip(new[same..].iter().rev());
    let tail = rest.take_while(|(a, b)| a == b).count();
    let start = same.saturating_sub(AROUND);
    let end = tail.saturating_sub(AROUND);
    // An empty range begins before its first line.
    let range = |count: usize| format!("{},{count}", if count == 0 { start } else { start + 1 });
    let (olds, news) = (old.len() - end - start, new.len() - end - start);
    let mut lines = format!("@@ -{} +{} @@\n", range(olds), range(news));
    let mut put = |sign: char, text: &[&str]| {
        for line in text {
            lines.push(sign);
            lines.push_str(line);
            if !line.ends_with('\n') {
                lines.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    put(' ', &old[start..same]);
    put('-', &old[same..old.len() - tail]);
    put('+', &new[same..new.len() - tail]);
    put(' ', &old[old.len() - tail..old.len() - end]);
    lines
}
