//! The levels of shares with their promises, for `--help`.

use runmig_lease::model::Level;

const ALL: [Level; 3] = [Level::Driver, Level::Mps, Level::None];

/// Returns the part of `--help` that lists the levels.
pub fn help() -> String {
    let line = |level: Level| format!("  {:<6}  {}", level.name(), level.promise());
    let lines = ALL.map(line).join("\n");
    format!("Levels of shares (sharing.enforcement), each with its promise:\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn help_and_docs_have_same_promises() {
        let docs = include_str!("../../docs/sharing.md");
        for level in ALL {
            let row = format!("| `{level}` | {} |", level.promise());
            assert!(docs.contains(&row), "docs/sharing.md lacks {row}");
            for verb in ["list", "explain"] {
                let mut command = crate::cli::Arguments::command();
                // Options of all verbs reach each of them.
                command.build();
                let verb = command.find_subcommand_mut(verb).unwrap();
                let help = verb.render_long_help().to_string();
                assert!(help.contains(level.promise()), "{help}");
            }
        }
    }
}
