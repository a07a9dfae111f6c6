//! The section `layout` of the configuration.

use crate::error::{Error, Result};
use serde::Deserialize;
use std::path::PathBuf;

/// The layout of this machine. `migctl apply` and `migctl assert` read it where no option names a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Layout {
    /// The absolute path of the file with layouts. None: this machine has no layout.
    pub file: Option<PathBuf>,
    /// The name of the configuration in the file. None: the file has one alone.
    pub config: Option<String>,
}

impl Layout {
    pub(super) fn check(&self) -> Result<()> {
        match (&self.file, &self.config) {
            (None, Some(name)) => {
                let what = format!("layout.config = {name:?} names a configuration of no file");
                Err(Error::new(what).hint("set layout.file"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn configuration_needs_a_file() {
        let line = |text: &str| Config::parse(text).unwrap_err().line();
        assert_eq!(
            line("[layout]\nconfig = \"day\""),
            "layout.config = \"day\" names a configuration of no file; hint: set layout.file"
        );
        assert_eq!(
            line("layout.file = \"layouts.yaml\""),
            "layout.file = \"layouts.yaml\" is not an absolute path"
        );
        let config = Config::parse("[layout]\nfile = \"/x\"\nconfig = \"day\"").unwrap();
        assert_eq!(config.layout.config.as_deref(), Some("day"));
        assert!(Config::parse("[layout]\nfile = \"/x\"").is_ok());
    }
}
