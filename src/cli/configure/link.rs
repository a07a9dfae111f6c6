//! The link `runmig-NAME` beside runmig, through which an engine calls runmig with another configuration, and the file
//! `/etc/runmig/NAME.toml` that it reads, for a runtime with a request.

use super::file::{self, Change};
use super::options::{HASH, MADE};
use super::rewrite::hash;
use super::{Task, configuration, needs, table};
use runmig_lease::config::{Config, DIRECTORY};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::paths::{inside, resolve};
use runmig_lease::programs::{self, FRONT};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use toml::Value;

impl Task<'_> {
    pub(super) fn is_link(&self) -> bool {
        programs::configuration_of(self.name.as_ref()).is_some()
            && self.runtime.ends_with(self.name)
    }

    /// Plans the link `runmig-NAME`: to be made, or to be removed after the changes. `None` where there is nothing
    /// to do.
    pub(super) fn link(&self, changes: &[Change]) -> Result<Option<Link>> {
        if !self.is_link() {
            return Ok(None);
        }
        let path = self.runtime.clone();
        let on_disk = self.on_disk(&path);
        let is_wanted = match self.remove {
            false => std::fs::symlink_metadata(&on_disk).is_err(),
            true => leads_to_front(&on_disk),
        };
        if !is_wanted {
            return Ok(None);
        }
        let folder = on_disk.parent().unwrap_or(Path::new("/"));
        file::below(&resolve(folder), self.root)
            .context(|| format!("use the folder of {}", path.display()))?;
        let fate = match self.remove {
            false => Fate::Made,
            true => needs::callers(self, self.name, changes).map_or(Fate::Removed, Fate::Kept),
        };
        Ok(Some(Link {
            path,
            on_disk,
            fate,
        }))
    }
}

pub struct Link {
    path: PathBuf,
    on_disk: PathBuf,
    fate: Fate,
}

enum Fate {
    Made,
    Removed,
    /// Why the link stays.
    Kept(String),
}

impl Link {
    /// Says whether a removal leaves it.
    pub fn stays(&self) -> bool {
        matches!(self.fate, Fate::Kept(_))
    }

    /// Makes or removes the link.
    pub fn make(&self) -> Result<()> {
        let (verb, done) = match self.fate {
            Fate::Made => ("make", symlink(FRONT, &self.on_disk)),
            Fate::Removed => ("remove", std::fs::remove_file(&self.on_disk)),
            Fate::Kept(_) => return Ok(()),
        };
        done.context(|| format!("{verb} the link {}", self.path.display()))
    }

    pub fn note(&self, dry_run: bool) -> String {
        let (done, planned) = match self.fate {
            Fate::Made => ("linked", "would link"),
            Fate::Removed => ("removed the link", "would remove the link"),
            Fate::Kept(_) => ("kept the link", "would keep the link"),
        };
        let verb = if dry_run { planned } else { done };
        let path = self.path.display();
        if let Fate::Kept(why) = &self.fate {
            return format!("{verb} {path}: {why}");
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let file = file_of(&name);
        format!("{verb} {path} to runmig; it reads {}", file.display())
    }
}

fn leads_to_front(link: &Path) -> bool {
    std::fs::read_link(link).is_ok_and(|to| to == Path::new(FRONT))
}

/// Returns the name of a handler with a request: `runmig-1g` for `1g`, since its configuration goes by the name of a link.
/// `folder`: that of the links.
pub fn handler(name: &str, has_request: bool, root: &Path, folder: &Path) -> String {
    let text = file::read(&inside(root, &file_of(name)), root);
    // Whoever wrote it.
    let table = text.and_then(|text| table::parse(&text.unwrap_or_default()));
    let asks = table.is_ok_and(|table| table.contains_key("request"));
    let link = format!("{FRONT}-{name}");
    let is_plain = programs::configuration_of(name.as_ref()).is_none() && name != FRONT;
    match is_plain && (has_request || asks || leads_to_front(&folder.join(&link))) {
        true => link,
        false => name.to_owned(),
    }
}

/// Returns the file of a handler, or of its name without `runmig-`.
pub fn file_of(name: &str) -> PathBuf {
    let own = programs::configuration_of(name.as_ref()).unwrap_or(name);
    Path::new(DIRECTORY).join(format!("{own}.toml"))
}

impl Task<'_> {
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
        let Some(file) = configuration(&self.runtime) else {
            return Ok(None);
        };
        if self.remove {
            let change = self.own_file(&file, None)?;
            return Ok(Some(change).filter(|change| change.changes() && self.is_link()));
        }
        let shown = file.display();
        let by_hand = |e: Error| e.hint("write [request] into it by hand, or remove it");
        let wanted = match words {
            [] => None,
            words => Some(text_of(words).context(|| "use --request")?),
        };
        let change = wanted.map(|text| self.own_file(&file, Some(text)).map_err(by_hand));
        let change = change.transpose()?;
        let text = self.after(change.as_slice(), &file)?;
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
        let file = configuration(&self.runtime).filter(|_| self.is_link())?;
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
    Config::parse(&body).map_err(|e| match e.to_string().split_once(": ") {
        // Of a file that is not there.
        Some((line, why)) if line.starts_with("line ") => {
            Error::new(why).hint(e.advice().unwrap_or_default())
        }
        _ => e,
    })?;
    Ok(format!("{MADE}{HASH}{}\n{body}", hash(&body)))
}
