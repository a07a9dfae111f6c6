//! The link `runmig-NAME` beside runmig, through which an engine calls runmig with another configuration, and the file
//! `/etc/runmig/NAME.toml` that it reads, for a runtime with a request.

use super::file::{self, Change};
use super::options::{HASH, MADE};
use super::rewrite::hash;
use super::{Task, callers, table};
use runmig_lease::config::{Config, DIRECTORY};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::paths::inside;
use runmig_lease::programs::{self, FRONT};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use toml::Value;

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
    /// Why the link stays.
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

/// Returns the name of a handler with a request: `runmig-1g` for `1g`, since its configuration goes by the name of a link.
/// `folder`: that of the links.
pub fn handler(name: &str, has_request: bool, root: &Path, folder: &Path) -> String {
    let link = std::fs::read_link(folder.join(format!("{FRONT}-{name}")));
    let text = file::read(&inside(root, &file_of(name)), root);
    // Whoever wrote it.
    let table = text.and_then(|text| table::parse(&text.unwrap_or_default()));
    let asks = table.is_ok_and(|table| table.contains_key("request"));
    let is_linked = link.is_ok_and(|to| to == Path::new(FRONT));
    match variant(name).is_none() && name != FRONT && (has_request || asks || is_linked) {
        true => format!("{FRONT}-{name}"),
        false => name.to_owned(),
    }
}

/// Returns the file of a handler, or of its name without `runmig-`.
pub fn file_of(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{}.toml", variant(name).unwrap_or(name)))
}

impl Task<'_> {
    /// Returns the file that the runtime reads, if it is a link.
    fn configuration(&self) -> Option<PathBuf> {
        variant(self.runtime.file_name()?.to_str()?).map(file_of)
    }

    /// Plans the file with the request in `words`, each `KEY=VALUE`, or its end. None where it stays as it is.
    ///
    /// # Errors
    /// A file that would stop runmig, or that somebody else wrote, and a request for all containers of an engine.
    pub(super) fn request(&self, words: &[String]) -> Result<Option<Change>> {
        if !words.is_empty() && !self.is_link() {
            return Err(Error::new(format!(
                "cannot give {} a request: no link runmig-NAME of that name is its runtime",
                self.name
            ))
            .hint("name one with --name, such as --name 1g, and omit --runtime-path"));
        }
        let Some(file) = self.configuration() else {
            return Ok(None);
        };
        if self.remove {
            let change = self.own_file(&file, None)?;
            return Ok(Some(change).filter(|change| change.changes() && self.is_link()));
        }
        let shown = file.display();
        let by_hand = |e: Error| e.hint("write [request] into it by hand, or remove it");
        let change = match words {
            [] => None,
            words => {
                let text = text_of(words).context(|| "use --request")?;
                Some(self.own_file(&file, Some(text)).map_err(by_hand)?)
            }
        };
        let text = match &change {
            Some(change) => change.after.clone(),
            None => self.read(&file)?,
        };
        let config = Config::parse(&text.unwrap_or_default());
        let config = config.context(|| format!("read configuration {shown}"))?;
        match config.request {
            Some(_) if self.default => Err(Error::new(format!(
                "cannot make {} the default: {shown} gives each of its containers a request",
                self.name
            ))
            .hint("omit --set-as-default")),
            _ => Ok(change),
        }
    }

    /// Returns the line about a file that stays after a removal.
    pub(super) fn kept_request(&self, dry_run: bool) -> Option<String> {
        let file = self.configuration().filter(|_| self.is_link())?;
        let verb = if dry_run { "would keep" } else { "kept" };
        let kept = || format!("{verb} {}: somebody wrote or changed it", file.display());
        self.on_disk(&file).exists().then(kept)
    }
}

fn text_of(words: &[String]) -> Result<String> {
    let mut body = "[request]\n".to_owned();
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            return Err(Error::new(format!("\"{word}\" has no value"))
                .hint("write KEY=VALUE, such as slice=1g.10gb"));
        };
        body += &match value {
            "true" | "false" => format!("{key} = {value}\n"),
            _ => format!("{key} = {}\n", Value::from(value)),
        };
    }
    Config::parse(&body)?;
    Ok(format!("{MADE}{HASH}{}\n{body}", hash(&body)))
}
