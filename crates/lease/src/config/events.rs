//! The section `events` of the configuration.

use super::Config;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The file of the default ledger.
const DEFAULT_FILE: &str = "/var/log/runmig/events.jsonl";
/// The name of the file beside any other ledger.
const NAME: &str = "events.jsonl";

/// The history of creates, leases and instances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// The absolute path of the file; empty for no history. None: [`Config::events_file`] has the default.
    pub file: Option<PathBuf>,
}

impl Events {
    /// Returns the file that the configuration names. None without one, or for no history.
    pub(super) fn named(&self) -> Option<&Path> {
        let file = self.file.as_deref();
        file.filter(|file| !file.as_os_str().is_empty())
    }
}

impl Config {
    /// Makes the default in words the default.
    pub(super) fn settle_events(&mut self) {
        let default = Config {
            state_dir: self.state_dir.clone(),
            ..Config::default()
        };
        if self.events_file() == default.events_file() {
            self.events.file = None;
        }
    }

    /// Returns the file of the events; none without a history. A ledger of its own has a history of its own: the default
    /// for another `state_dir` lies in it.
    pub fn events_file(&self) -> Option<PathBuf> {
        match &self.events.file {
            Some(_) => self.events.named().map(Path::to_owned),
            None if self.state_dir == Config::default().state_dir => Some(DEFAULT_FILE.into()),
            None => Some(self.state_dir.join(NAME)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_has_its_own_history() {
        let file = |text: &str| Config::parse(text).unwrap().events_file();
        assert_eq!(file(""), Some(DEFAULT_FILE.into()));
        assert_eq!(file("state_dir = \"/r\""), Some("/r/events.jsonl".into()));
        let own = "state_dir = \"/r\"\n[events]\nfile = \"/x\"";
        assert_eq!(file(own), Some("/x".into()));
        assert_eq!(file("[events]\nfile = \"\""), None);
        let e = Config::parse("[events]\nfile = \"x\"").unwrap_err();
        assert_eq!(e.line(), "events.file = \"x\" is not an absolute path");
    }
}
