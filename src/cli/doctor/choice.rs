//! The choice of checks by `--only` and `--skip`.

use super::group::{GROUPS, Group};
use clap::builder::{PossibleValue, PossibleValuesParser};

#[derive(clap::Args)]
pub struct Choice {
    /// Make only these checks: a group, or a check such as state.space
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = names(), hide_possible_values = true)]
    only: Vec<String>,
    /// Leave out these checks
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = names(), hide_possible_values = true)]
    skip: Vec<String>,
}

/// Returns the names of all groups and checks.
fn names() -> PossibleValuesParser {
    let names = GROUPS.iter().flat_map(|group| {
        let checks =
            { group.checks.iter() }.map(|check| PossibleValue::new(check.id).help(check.meaning));
        [PossibleValue::new(group.name)].into_iter().chain(checks)
    });
    PossibleValuesParser::new(names)
}

impl Choice {
    /// Says whether a check is wanted.
    pub fn has(&self, group: &Group, id: &str) -> bool {
        let names = |list: &[String]| list.iter().any(|name| name == group.name || name == id);
        (self.only.is_empty() || names(&self.only)) && !names(&self.skip)
    }

    /// Says whether a check of a group is wanted.
    pub fn has_any(&self, group: &Group) -> bool {
        group.checks.iter().any(|check| self.has(group, check.id))
    }
}
