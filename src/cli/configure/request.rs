//! The file of a runtime with a request: `/etc/runmig/NAME.toml`, which the link `runmig-NAME` reads.

use super::file::{self, Change};
use super::link::variant;
use super::options::{HASH, MADE, Task};
use super::rewrite::hash;
use super::table;
use runmig_lease::config::{Config, DIRECTORY};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::paths::inside;
use runmig_lease::programs::FRONT;
use std::path::{Path, PathBuf};
use toml::Value;

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
