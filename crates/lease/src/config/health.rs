//! The section `health` of the configuration.

use crate::model::{Sign, SignKind};
use serde::Deserialize;

/// The signs of the driver by which a GPU counts as sick: all that it does not ignore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// Signs that do not count.
    pub ignore: Vec<SignKind>,
    /// The uncorrectable memory errors since the driver was loaded that a GPU may have.
    pub max_uncorrectable_errors: u64,
}

impl Health {
    /// Says whether a sign counts.
    pub(crate) fn counts(&self, sign: &Sign) -> bool {
        let is_bounded = sign.kind == SignKind::UncorrectableErrors
            && sign.amount <= self.max_uncorrectable_errors;
        !is_bounded && !self.ignore.contains(&sign.kind)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::model::{Sign, SignKind};

    #[test]
    fn ignores_what_it_names_alone() {
        let counts = |text: &str, kind, amount| {
            let health = Config::parse(text).unwrap().health;
            health.counts(&Sign { kind, amount })
        };
        let errors = SignKind::UncorrectableErrors;
        assert!(counts("", errors, 1));
        assert!(!counts("health.max_uncorrectable_errors = 3", errors, 3));
        assert!(counts("health.max_uncorrectable_errors = 3", errors, 4));
        let ignored = "health.ignore = [\"fabric-down\", \"lost\"]";
        assert!(!counts(ignored, SignKind::FabricDown, 1));
        assert!(!counts(ignored, SignKind::Lost, 1));
        assert!(counts(ignored, SignKind::RecoveryAction, 1));
        let wrong = Config::parse("health.ignore = [\"fabric-dwn\"]").unwrap_err();
        assert!(wrong.line().ends_with("hint: write \"fabric-down\""));
    }
}
