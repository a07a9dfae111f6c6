//! The section `dcgm` of the configuration.

use crate::error::{Error, Result};
use serde::Deserialize;
use std::time::Duration;

/// The shortest time between two signals. dcgm-exporter drops a signal that comes within 2 s of the one before.
const SHORTEST: Duration = Duration::from_secs(5);
/// The longest one: a call that waits for its turn must end within the time of its unit.
const LONGEST: Duration = Duration::from_secs(60);

/// The work beside dcgm-exporter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dcgm {
    /// The shortest time between two reloads.
    #[serde(deserialize_with = "super::duration")]
    pub reload_every: Duration,
}

impl Default for Dcgm {
    fn default() -> Self {
        Dcgm {
            reload_every: Duration::from_secs(30),
        }
    }
}

impl Dcgm {
    pub(super) fn check(&self) -> Result<()> {
        match (SHORTEST..=LONGEST).contains(&self.reload_every) {
            true => Ok(()),
            false => Err(Error::new("dcgm.reload_every is not between 5s and 1m")
                .hint("dcgm-exporter drops signals that come too soon; set 30s")),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn bounds_values() {
        let line = |text: &str| {
            Config::parse(&format!("[dcgm]\n{text}"))
                .unwrap_err()
                .line()
        };
        for wrong in ["4s", "61s"] {
            let said = line(&format!("reload_every = \"{wrong}\""));
            assert!(
                said.starts_with("dcgm.reload_every is not between 5s and 1m"),
                "{said}"
            );
        }
        assert!(Config::parse("[dcgm]\nreload_every = \"1m\"").is_ok());
    }
}
