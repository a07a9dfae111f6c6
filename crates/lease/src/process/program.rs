//! Runs a program for its output, with a bound on both.

use crate::effect::{self, Kind};
use crate::error::{Context, Result, printable};
use crate::process;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{ErrorKind, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The most of an answer in one text that runmig reads, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// The most of an output that is apart, in bytes. containerd prints its configuration in some 10 KiB.
const MAX_APART: usize = 1024 * 1024;

/// The answer of a program.
#[derive(Debug)]
pub struct Answer {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output, and its standard error unless that is apart.
    pub text: String,
    /// Its standard error, if that is apart.
    pub complaint: String,
}

/// Returns the output of a program that succeeds within a time.
pub fn output(program: &Path, arguments: &[&str], time: Duration) -> Result<String> {
    let what = || format!("run {} {}", program.display(), arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments);
    succeed(command, time).context(what)
}

/// The same of a command. The error is the reason alone.
pub(crate) fn succeed(
    command: Command,
    time: Duration,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let answer = run(command, Stdio::null(), Instant::now() + time)?;
    match answer.status.success() {
        true => Ok(answer.text),
        false => Err(shown(&answer).into()),
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

/// Runs a program.
///
/// # Errors
/// `TimedOut`: it did not end in time, and is killed.
pub(crate) fn run(
    mut command: Command,
    stdin: impl Into<Stdio>,
    end: Instant,
) -> std::io::Result<Answer> {
    let (output, both) = std::io::pipe()?;
    command.stdout(both.try_clone()?).stderr(both).stdin(stdin);
    // A child of it that goes on may have the pipe.
    finish(command, &[output], MAX_ANSWER, end, false)
}

/// Runs a program as `run`, with its standard error apart, and the standard input of the command. Its output has to end in
/// time, too.
pub fn run_apart(mut command: Command, end: Instant) -> std::io::Result<Answer> {
    let ((output, out), (complaint, err)) = (std::io::pipe()?, std::io::pipe()?);
    command.stdout(out).stderr(err);
    finish(command, &[output, complaint], MAX_APART, end, true)
}

fn finish(
    mut command: Command,
    outputs: &[PipeReader],
    most: usize,
    end: Instant,
    to_the_end: bool,
) -> std::io::Result<Answer> {
    let name = command.get_program().to_string_lossy().into_owned();
    process::wait_for_children();
    command.current_dir("/").process_group(0);
    let mut child = effect::spawn(&mut command)?;
    // The command holds the pipes open as well.
    drop(command);
    let ended = read_until(outputs, most, end).and_then(|(texts, is_read)| {
        let status = wait_until(&mut child, end)?;
        Ok((texts, status.filter(|_| is_read || !to_the_end)))
    });
    if !matches!(ended, Ok((_, Some(_)))) {
        stop(&mut child);
    }
    let (mut texts, status) = ended?;
    if let Some(status) = status {
        let mut texts = texts.into_iter();
        return Ok(Answer {
            status,
            text: texts.next().unwrap_or_default(),
            complaint: texts.next().unwrap_or_default(),
        });
    }
    texts.retain(|text| !text.trim().is_empty());
    let said = texts.last().map_or(String::new(), |text| {
        format!(": {}", printable(text.trim()))
    });
    let why = format!("{name} did not end in time{said}");
    Err(std::io::Error::new(ErrorKind::TimedOut, why))
}

/// Reads each output to its end. Returns whether it came to that.
fn read_until(
    outputs: &[PipeReader],
    most: usize,
    end: Instant,
) -> std::io::Result<(Vec<String>, bool)> {
    let mut texts = vec![Vec::new(); outputs.len()];
    let mut open: Vec<usize> = (0..outputs.len()).collect();
    let mut part = [0u8; 4096];
    while !open.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        let fd = |n: &usize| PollFd::new(outputs[*n].as_fd(), PollFlags::POLLIN);
        let mut fds: Vec<PollFd<'_>> = open.iter().map(fd).collect();
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match nix::poll::poll(&mut fds, timeout) {
            Ok(0) => break,
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(e) => return Err(e.into()),
        }
        let ready = { open.iter().zip(&fds) }.filter(|(_, fd)| fd.any() == Some(true));
        for n in ready.map(|(n, _)| *n).collect::<Vec<_>>() {
            let is_over = match (&outputs[n]).read(&mut part) {
                Ok(count) => {
                    texts[n].extend(&part[..count]);
                    count == 0 || texts[n].len() >= most
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => false,
                Err(e) => return Err(e),
            };
            open.retain(|other| *other != n || !is_over);
        }
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((texts.into_iter().map(text).collect(), open.is_empty()))
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

/// Makes a program. This process never has it open, since a child of another test would keep that open, and no open file runs.
#[cfg(test)]
pub(crate) fn install(path: &Path, text: &str) {
    let mut install = Command::new("install");
    install.args(["-Dm755", "/dev/stdin"]).arg(path);
    install.stdin(input(text).unwrap());
    assert!(install.status().unwrap().success());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Returns longer and longer times, since a busy machine needs more for the same.
    fn times() -> impl Iterator<Item = Duration> {
        (0..9).map(|n| Duration::from_millis(100 << n))
    }

    #[test]
    fn failed_program_says_why() {
        let said = |script: &str| output(Path::new("sh"), &["-c", script], LONG);
        assert_eq!(said("echo out; echo err >&2").unwrap(), "out\nerr\n");
        for (script, why) in [
            ("echo no >&2; exit 3", "no"),
            ("printf 'a\\nb\\n'; exit 1", "a\\u{a}b"),
            ("exit 3", "exit status: 3"),
        ] {
            let line = said(script).unwrap_err().line();
            assert!(line.ends_with(&format!(": {why}")), "{line}");
        }
    }

    #[test]
    fn keeps_complaints_apart() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2"]);
        let answer = run_apart(command, Instant::now() + LONG).unwrap();
        assert_eq!((&*answer.text, &*answer.complaint), ("out\n", "err\n"));
    }

    /// A daemon that a program leaves behind may keep its output.
    #[test]
    fn output_has_to_end_only_apart() {
        let left = || {
            let (stdin, writer) = std::io::pipe().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", "exec 3<&0; cat <&3 & echo begun"]);
            (command, stdin, writer)
        };
        let begun = times().find_map(|time| {
            let (command, stdin, _writer) = left();
            run(command, stdin, Instant::now() + time).ok()
        });
        assert_eq!(begun.unwrap().text, "begun\n");
        let (mut command, stdin, _writer) = left();
        command.stdin(stdin);
        let late = run_apart(command, Instant::now() + Duration::from_millis(100)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn kills_program_that_does_not_end_in_time() {
        let pid = times().find_map(|time| {
            let (stdin, writer) = std::io::pipe().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", "echo $$; exec cat"]);
            let late = run(command, stdin, Instant::now() + time).unwrap_err();
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            let said = late.to_string();
            let pid = said.strip_prefix("sh did not end in time: ")?;
            Some((pid.parse().unwrap(), writer))
        });
        let (pid, _writer) = pid.unwrap();
        assert_eq!(process::of(pid), None);
    }
}
