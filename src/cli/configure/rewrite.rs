//! A file of an engine with other content too, which migctl rewrites. The original stays beside it, as
//! `FILE.before-runmig-HASH` with the hash of what migctl wrote. While that hash fits, the original is where each run starts,
//! and what the last removal puts back. Once an administrator has changed the file, migctl changes its own entry alone.

use super::file::Change;
use super::{MADE, Task};
use runmig_lease::error::{Context, Result};
use runmig_lease::framed::sha256;
use runmig_lease::paths;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Stands for the original of a file that was not there.
const ABSENT: &str = MADE;

/// The length of a hash, in hexadecimal digits.
const HASH: usize = 16;

pub fn hash(text: &str) -> String {
    sha256(text.as_bytes())[..HASH].to_owned()
}

fn is_absent(original: &str) -> bool {
    original.starts_with(ABSENT)
}

/// How one engine changes its file.
pub struct Rewrite<'a> {
    /// Returns a text without this handler, or without all handlers of runmig; the same text where none is there.
    pub without: &'a dyn Fn(&str, Which) -> Result<String>,
    /// Adds this handler to a text without it.
    pub with: &'a dyn Fn(&str) -> Result<String>,
    /// Says whether two texts have the same values.
    pub same: fn(&str, &str) -> bool,
    /// The text of a new file, without a handler.
    pub empty: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    This,
    All,
}

/// The original of a file, to be kept as long as the file has a handler of runmig.
pub struct Kept {
    /// The file beside, without the hash.
    stem: PathBuf,
    /// None where nothing is to be kept.
    pub text: Option<String>,
}

impl Kept {
    fn of(on_disk: &Path) -> Kept {
        let target = paths::resolve(on_disk);
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        Kept {
            stem: target.with_file_name(format!("{name}.before-runmig-")),
            text: None,
        }
    }

    /// Returns the path beside a file with this text.
    pub fn beside(&self, text: &str) -> PathBuf {
        PathBuf::from(format!("{}{}", self.stem.display(), hash(text)))
    }

    /// Returns all originals beside the file but one.
    pub fn stale(&self, except: Option<&Path>) -> Vec<PathBuf> {
        let stem = self.stem.as_os_str().as_bytes();
        // An administrator may keep copies of such names too.
        let is_hash = |end: &[u8]| end.len() == HASH && end.iter().all(u8::is_ascii_hexdigit);
        let is_ours = |path: &PathBuf| {
            let end = path.as_os_str().as_bytes().strip_prefix(stem);
            end.is_some_and(is_hash) && Some(path.as_path()) != except
        };
        let folder = self.stem.parent().unwrap_or(Path::new("/"));
        paths::entries(folder).filter(is_ours).collect()
    }
}

impl Task<'_> {
    /// Plans the change of a file with other content.
    pub fn rewrite(&self, path: &Path, rewrite: &Rewrite<'_>) -> Result<Change> {
        let mut change = self.unchanged(path)?;
        let mut kept = Kept::of(&change.on_disk);
        let what = || format!("change {}", path.display());
        let Some(now) = &change.before else {
            if !self.remove {
                change.after = Some((rewrite.with)(rewrite.empty).context(what)?);
                kept.text = Some(format!("{ABSENT}{}", self.made_folders(path)));
            }
            change.kept = Some(kept);
            return Ok(change);
        };
        let without = |text: &str, which| (rewrite.without)(text, which).context(what);
        let plain = without(now, Which::This)?;
        let has_others = plain != without(&plain, Which::All)?;
        let beside = kept.beside(now);
        let original = super::file::read(&beside, self.root).and_then(|original| match original {
            Some(text) if !is_absent(&text) => (rewrite.without)(&text, Which::This).map(Some),
            original => Ok(original),
        });
        let original = original
            .context(|| format!("read the original {}", beside.display()))
            .map_err(|e| e.hint("correct or remove that file"))?;
        let base = match &original {
            Some(text) if !has_others && is_absent(text) => rewrite.empty,
            Some(text) if !has_others => text,
            _ => &plain,
        };
        let is_over = self.remove && !has_others;
        change.after = match self.remove {
            true if is_over && original.as_deref().is_some_and(is_absent) => None,
            true => Some(base.to_owned()),
            false => Some((rewrite.with)(base).context(what)?),
        };
        if let Some(text) = original.as_deref().filter(|_| change.after.is_none()) {
            change.folders = self.folders_in(text, path);
        }
        if !self.remove && (rewrite.same)(change.after.as_deref().unwrap_or_default(), now) {
            change.after = Some(now.clone());
        }
        kept.text = Some(original.unwrap_or(plain))
            .filter(|text| !is_over && Some(text) != change.after.as_ref());
        change.kept = Some(kept);
        Ok(change)
    }
}
