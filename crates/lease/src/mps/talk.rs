//! Runs the control program for one answer.

use super::launch;
use crate::error::{Context, Error, Result};
use crate::process::program::{self, Answer, shown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time for one answer, and for the start of a daemon. A command takes 5 to 10 ms.
pub(super) const TIME: Duration = Duration::from_secs(5);

/// Sends one command to the daemon of a directory, and returns its answer.
///
/// # Errors
/// The program cannot be run, does not answer in time, or exits with another status than 0, as it does
/// without a daemon.
pub(super) fn tell(program: &Path, pipes: &Path, command: &str, end: Instant) -> Result<String> {
    let mut run = Command::new(program);
    run.env_clear().env("CUDA_MPS_PIPE_DIRECTORY", pipes);
    let answer = ask(run, command, end)?;
    match answer.status.success() {
        true => Ok(answer.text),
        false => Err(Error::new(format!(
            "{} does not take \"{command}\": {}",
            program.display(),
            shown(&answer)
        ))),
    }
}

/// Runs a program with this input, and returns its output.
pub(super) fn ask(command: Command, input: &str, end: Instant) -> Result<Answer> {
    let name = command.get_program().to_string_lossy().into_owned();
    let answer = run(command, input, end).context(|| format!("run {name}"))?;
    answer.map_err(Error::new)
}

/// Returns whether a failed start says that the machine cannot execute the program at all.
pub(super) fn is_not_executable(e: &std::io::Error) -> bool {
    let never = [libc::ENOENT, libc::EACCES, libc::ENOEXEC, libc::ELIBBAD];
    e.raw_os_error().is_some_and(|errno| never.contains(&errno))
}

/// Runs a program with this input; it ends with this process. The inner error says that it did not end in time.
pub(super) fn run(
    mut command: Command,
    input: &str,
    end: Instant,
) -> std::io::Result<std::result::Result<Answer, String>> {
    launch::leave_descriptors(&mut command);
    program::run(command, program::input(input)?, end)
}
