//! `migctl completion`: prints the code by which a shell completes migctl's words.
//!
//! The code asks migctl at each TAB, by an environment variable, so that it also completes the ids and profiles of the
//! moment.

mod values;

pub use values::{containers, handlers, holders, namespaces, profiles};

use super::output;
use clap::{CommandFactory, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::env::Shells;
use runmig_lease::error::{Context, Result};

/// The variable by which the code in the shell asks migctl.
const VARIABLE: &str = "MIGCTL_COMPLETE";

/// The part of `--help` that says where the code belongs.
pub const HELP: &str = "\
In bash:  source <(migctl completion bash)
In zsh:   source <(migctl completion zsh)
In fish:  migctl completion fish | source

Put the line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish. Packages install it.";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Shell::Bash => "bash",
            Shell::Zsh => "zsh",
            Shell::Fish => "fish",
        }
    }
}

/// Prints the code for one shell.
pub fn run(shell: Shell) -> Result<i32> {
    output::line(code(shell)?.trim());
    Ok(0)
}

fn code(shell: Shell) -> Result<String> {
    let name = shell.name();
    let what = || format!("write the completion of {name}");
    let shells = Shells::builtins();
    let writer = { shells.completer(name) }.ok_or("clap does not know it");
    let mut code = Vec::new();
    { writer.context(what)? }
        .write_registration(VARIABLE, "migctl", "migctl", "migctl", &mut code)
        .context(what)?;
    Ok(String::from_utf8_lossy(&code).into_owned())
}

/// Answers a shell that asks for completions, and ends the process. Returns if none asks.
pub fn answer<C: CommandFactory>() {
    CompleteEnv::with_factory(C::command)
        .var(VARIABLE)
        .complete();
}
