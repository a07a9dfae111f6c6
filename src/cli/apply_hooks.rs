//! Runs the commands of mig-parted's hooks file around an apply or a restore.

use runmig_lease::error::{Context, Error, Result};
use runmig_lease::layout::{self, HookCommand, Moment};
use runmig_lease::trust;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// The prefix of the variables that stand for options.
const PREFIX: &str = "MIG_PARTED_";

/// The hooks of one call.
pub struct Hooks {
    commands: Vec<HookCommand>,
    variables: Vec<(OsString, OsString)>,
}

impl Hooks {
    /// Reads a file of hooks, and looks at their programs. Each gets these variables, and nothing else of the environment.
    ///
    /// # Errors
    /// Others than root can change the file or a program.
    pub fn read(path: &Path, variables: Vec<(&str, OsString)>) -> Result<Hooks> {
        let commands = layout::read_hooks(path)?;
        for command in &commands {
            let what = || format!("use hook {} of {}", command.moment.key(), path.display());
            let program = || format!("run {}", command.program.display());
            trust::program(&command.program)
                .context(program)
                .context(what)?;
            if let Some(dir) = command.workdir.as_ref().filter(|dir| !dir.is_dir()) {
                let why = format!("{} is no directory", dir.display());
                return Err(Error::new(why)).context(what);
            }
        }
        let named = |(name, value)| (OsString::from(format!("{PREFIX}{name}")), value);
        Ok(Hooks {
            commands,
            variables: variables.into_iter().map(named).collect(),
        })
    }

    /// Runs the commands of a moment, up to one that fails.
    pub fn run(&self, moment: Moment) -> Result<()> {
        let mut commands = self.commands.iter();
        commands.try_for_each(|command| match command.moment == moment {
            true => self
                .run_one(command)
                .context(|| format!("run hook {}", moment.key())),
            false => Ok(()),
        })
    }

    /// Its output goes to standard error, since standard output is migctl's.
    fn run_one(&self, hook: &HookCommand) -> Result<()> {
        let what = || format!("run {}", hook.program.display());
        let output = std::io::stderr().as_fd().try_clone_to_owned();
        let mut command = Command::new(&hook.program);
        command
            .args(&hook.args)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .envs(hook.envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.context(what)?);
        if let Some(dir) = &hook.workdir {
            command.current_dir(dir);
        }
        let status = command.status().context(what)?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::new(format!("it ended with {status}"))).context(what),
        }
    }
}
