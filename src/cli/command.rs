//! Programs that migctl asks, with a limit on time and output.

use super::driver;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::{process, trust};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// Runs a program as a low-level runtime starts a hook: in `/`, with these variables alone. Returns its standard output.
///
/// # Errors
/// The program cannot be run, fails, or does not end in time; it is then killed. A failure has the last line of its standard
/// error.
pub fn output(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<String> {
    let (status, said, complaint) = run(program, arguments, variables)?;
    if status.success() {
        return Ok(said);
    }
    let last = complaint.lines().last().unwrap_or("it prints no reason");
    let failed = Error::new(format!("{status}: {last}"));
    Err(failed).context(|| format!("run {} {}", program.display(), arguments.join(" ")))
}

/// Returns the exit status, the standard output and the standard error of a program that is run like that.
pub fn run(
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<(ExitStatus, String, String)> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    finish(command, || {
        format!("run {} {}", program.display(), arguments.join(" "))
    })
}

/// Runs a program to its end with the standard input of the command, and returns its exit status, standard output and standard error.
///
/// # Errors
/// Users could change the program that root is about to run, or it does not end in time, and is killed. It has twice the time of
/// the driver: an engine of Go prints its version within 0.2 s, on a busy machine within seconds.
pub fn finish<W: Into<String>>(
    command: Command,
    what: impl Fn() -> W,
) -> Result<(ExitStatus, String, String)> {
    if trust::is_host_root() {
        trust::program(command.get_program().as_ref()).context(&what)?;
    }
    let end = Instant::now() + driver::limit() * 2;
    let answer = process::run_apart(command, end).context(&what)?;
    let text = |text: String| text.trim().to_owned();
    Ok((answer.status, text(answer.text), text(answer.complaint)))
}
