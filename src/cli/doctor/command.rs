//! Programs that the checks run: without input or environment, with a limit on time and output.

use runmig_lease::error::{Context, Error, Result};
use runmig_lease::files;
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The time that a program gets. An engine of Go prints its version within 0.2 s, on a busy machine within seconds.
const PATIENCE: Duration = Duration::from_secs(20);
const MAX_OUTPUT: u64 = 1024 * 1024;

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

/// Returns the exit status, the standard output and the standard error of a program.
pub fn run(
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<(ExitStatus, String, String)> {
    let what = || format!("run {} {}", program.display(), arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir("/");
    command.envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().context(what)?;
    let (out, err) = (read(child.stdout.take()), read(child.stderr.take()));
    // Its output ends with it, unless a child of it has the pipe.
    let (Ok(said), Ok(complaint)) = (out.recv_timeout(PATIENCE), err.recv_timeout(PATIENCE)) else {
        let _ = child.kill();
        let _ = child.wait();
        let why = format!("it does not end within {} seconds", PATIENCE.as_secs());
        return Err(Error::new(why)).context(what);
    };
    Ok((child.wait().context(what)?, said, complaint))
}

/// Reads an output to its end, in a thread of its own.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (told, hears) = mpsc::channel();
    std::thread::spawn(move || {
        let bytes = pipe.map(|pipe| files::read_start(pipe, MAX_OUTPUT));
        let bytes = bytes.and_then(std::io::Result::ok).unwrap_or_default();
        let _ = told.send(String::from_utf8_lossy(&bytes).trim().to_owned());
    });
    hears
}
