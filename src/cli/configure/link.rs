//! The link `runmig-NAME` beside runmig, through which an engine calls runmig with another configuration.

use super::file::{self, Change};
use super::{Task, callers};
use runmig_lease::error::{Context, Result};
use runmig_lease::programs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Returns NAME for a link `runmig-NAME`, which reads NAME.toml.
pub fn variant(name: &str) -> Option<&str> {
    programs::configuration_of(Path::new(name))
}

impl Task<'_> {
    pub(super) fn is_link(&self) -> bool {
        variant(self.name).is_some_and(|_| self.runtime.file_name().is_some_and(|f| f == self.name))
    }

    /// Plans the link `runmig-NAME`: to be made, or to be removed after the changes. `None` where there is nothing
    /// to do.
    pub(super) fn link(&self, changes: &[Change]) -> Result<Option<Link>> {
        if !self.is_link() {
            return Ok(None);
        }
        let on_disk = self.on_disk(&self.runtime);
        let is_wanted = match self.remove {
            false => std::fs::symlink_metadata(&on_disk).is_err(),
            true => std::fs::read_link(&on_disk).is_ok_and(|to| to == Path::new(programs::FRONT)),
        };
        if !is_wanted {
            return Ok(None);
        }
        let path = self.runtime.clone();
        let folder = on_disk.parent().unwrap_or(Path::new("/"));
        file::below(&runmig_lease::paths::resolve(folder), self.root)
            .context(|| format!("use the folder of {}", path.display()))?;
        let kept = || callers::reason(self, self.name, changes);
        let kept = self.remove.then(kept).flatten();
        let link = Link {
            path,
            on_disk,
            kept,
        };
        Ok(Some(link))
    }
}

pub struct Link {
    path: PathBuf,
    on_disk: PathBuf,
    /// The reason why the link stays.
    pub kept: Option<String>,
}

impl Link {
    pub fn make(&self) -> Result<()> {
        symlink(programs::FRONT, &self.on_disk)
            .context(|| format!("make the link {}", self.path.display()))
    }

    pub fn remove(&self) -> Result<()> {
        if self.kept.is_some() {
            return Ok(());
        }
        std::fs::remove_file(&self.on_disk)
            .context(|| format!("remove the link {}", self.path.display()))
    }

    pub fn note(&self, remove: bool, dry_run: bool) -> String {
        if let Some(why) = &self.kept {
            let verb = if dry_run { "would keep" } else { "kept" };
            return format!("{verb} the link {}: {why}", self.path.display());
        }
        let verb = match (remove, dry_run) {
            (false, false) => "linked",
            (false, true) => "would link",
            (true, false) => "removed the link",
            (true, true) => "would remove the link",
        };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let from = variant(&name).unwrap_or_default();
        format!(
            "{verb} {} to runmig; it reads /etc/runmig/{from}.toml",
            self.path.display()
        )
    }
}
