//! Programs that migctl asks, with a limit on time and output.

use super::driver;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::{files, trust};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

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

/// Returns the exit status, the standard output and the standard error of a program that is run like that.
pub fn run(
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<(ExitStatus, String, String)> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir("/");
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    finish(command, || {
        format!("run {} {}", program.display(), arguments.join(" "))
    })
}

/// Runs a program to its end, and returns its exit status, standard output and standard error.
///
/// # Errors
/// Users could change the program that root is about to run, or it does not end in time, and is killed. It has twice the time of
/// the driver: an engine of Go prints its version within 0.2 s, on a busy machine within seconds.
pub fn finish<W: Into<String>>(
    mut command: Command,
    what: impl Fn() -> W,
) -> Result<(ExitStatus, String, String)> {
    if trust::is_host_root() {
        trust::program(command.get_program().as_ref()).context(&what)?;
    }
    let patience = driver::limit() * 2;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn().context(&what)?;
    let (out, err) = (read(child.stdout.take()), read(child.stderr.take()));
    let start = Instant::now();
    let hear = |from: Receiver<String>| from.recv_timeout(patience.saturating_sub(start.elapsed()));
    // Its output ends with it, unless a child of it has the pipe.
    let (Ok(said), Ok(complaint)) = (hear(out), hear(err)) else {
        let group = i32::try_from(child.id()).map(Pid::from_raw);
        let _ = group.map(|group| killpg(group, Signal::SIGKILL));
        let _ = child.wait();
        let patience = humantime::format_duration(patience);
        return Err(Error::new(format!("it does not end within {patience}"))).context(what);
    };
    Ok((child.wait().context(&what)?, said, complaint))
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
