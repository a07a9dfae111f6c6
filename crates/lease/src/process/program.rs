//! Runs a program for its output, with a bound on both.

use super::signals;
use crate::effect::{self, Kind};
use crate::error::{Context, Error, Result, printable};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{ErrorKind, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The most of an answer that runmig reads, in bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// The answer of a program.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: ExitStatus,
    /// Its standard output and standard error.
    pub text: String,
}

/// Returns the output of a program that succeeds within a time.
pub fn output(program: &Path, arguments: &[&str], time: Duration) -> Result<String> {
    let what = || format!("run {} {}", program.display(), arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments);
    let answer = run(command, Stdio::null(), Instant::now() + time).context(what)?;
    match answer.map_err(Error::new).context(what)? {
        answer if answer.status.success() => Ok(answer.text),
        answer => Err(Error::new(shown(&answer))).context(what),
    }
}

/// Returns an answer in one line.
pub(crate) fn shown(answer: &Answer) -> String {
    match answer.text.trim() {
        "" => answer.status.to_string(),
        text => printable(text),
    }
}

/// Returns standard input with this text. All of it is in the pipe before the program starts, since a write to one that has
/// ended would end this process with SIGPIPE.
pub(crate) fn input(text: &str) -> std::io::Result<PipeReader> {
    let (stdin, mut writer) = std::io::pipe()?;
    effect::write_all(&mut writer, format!("{text}\n").as_bytes())?;
    Ok(stdin)
}

/// Runs a program. The inner error says that it did not end in time.
pub(crate) fn run(
    mut command: Command,
    stdin: impl Into<Stdio>,
    end: Instant,
) -> std::io::Result<std::result::Result<Answer, String>> {
    let name = command.get_program().to_string_lossy().into_owned();
    signals::wait_for_children();
    // One pipe takes both outputs.
    let (mut output, both) = std::io::pipe()?;
    command.stdin(stdin).stdout(both.try_clone()?).stderr(both);
    command.current_dir("/").process_group(0);
    let mut child = effect::spawn(&mut command)?;
    // The command holds the pipe open as well.
    drop(command);
    let read = read_until(&mut output, end);
    let text = match read.and_then(|text| Ok((text, wait_until(&mut child, end)?))) {
        Ok((text, Some(status))) => return Ok(Ok(Answer { status, text })),
        Ok((text, None)) => text,
        Err(e) => {
            stop(&mut child);
            return Err(e);
        }
    };
    stop(&mut child);
    Ok(Err(format!(
        "{name} did not end in time{}",
        match text.trim() {
            "" => String::new(),
            text => format!(": {}", printable(text)),
        }
    )))
}

fn read_until(output: &mut std::io::PipeReader, end: Instant) -> std::io::Result<String> {
    let (mut bytes, mut part) = (Vec::new(), [0u8; 4096]);
    while bytes.len() < MAX_ANSWER {
        let left = end.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match nix::poll::poll(&mut fds, timeout) {
            Ok(0) => break,
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(e) => return Err(e.into()),
        }
        match output.read(&mut part) {
            Ok(0) => break,
            Ok(count) => bytes.extend(&part[..count]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the status of a child that ends in time.
///
/// # Errors
/// The child is not this process's.
pub fn wait_until(child: &mut Child, end: Instant) -> std::io::Result<Option<ExitStatus>> {
    let mut gap = Duration::from_micros(100);
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() >= end {
            return Ok(ended);
        }
        std::thread::sleep(gap);
        gap = (gap * 2).min(Duration::from_millis(20));
    }
}

/// Kills a program with its children.
#[allow(clippy::disallowed_methods)]
fn stop(child: &mut Child) {
    let _ = effect::effect(Kind::Kill, "");
    let group = i32::try_from(child.id()).map(Pid::from_raw);
    let _ = group.map(|group| killpg(group, Signal::SIGKILL));
    let _ = child.kill();
    let _ = child.wait();
}
