//! Starts the control program as a daemon: a child that waits until its process is on record.

use crate::effect::{self, Kind};
use crate::error::{Context, Error, Result};
use crate::model::Process;
use crate::process;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The flag of `close_range` that closes at an exec. A kernel before 5.11 refuses it, and closes nothing.
const CLOSE_ON_EXEC: u32 = 4;

/// A program to start.
pub(super) struct Image {
    pub program: CString,
    pub arguments: Vec<CString>,
    /// The whole environment.
    pub environment: Vec<CString>,
    /// The file for standard output and standard error.
    pub log: File,
}

/// A child that has not begun. It ends if this is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    child: Pid,
    go: OwnedFd,
    /// The child's end. With it a write cannot end this process with SIGPIPE.
    _wait: OwnedFd,
}

/// Forks the child, with a session of its own and none of this process's descriptors: an engine waits until all
/// holders of its own have closed them.
#[allow(clippy::disallowed_methods)]
pub(super) fn fork_waiting(image: &Image) -> Result<Waiting> {
    let what = || format!("start {}", image.program.to_string_lossy());
    process::wait_for_children();
    let null = File::open("/dev/null").context(what)?;
    let pointers = |all: &[CString]| -> Vec<*const libc::c_char> {
        { all.iter().map(|text| text.as_ptr()) }
            .chain([std::ptr::null()])
            .collect()
    };
    let (arguments, environment) = (pointers(&image.arguments), pointers(&image.environment));
    let (wait, go) = pipe2(OFlag::O_CLOEXEC).context(what)?;
    let open = process::descriptors().context(what)?;
    effect::effect(Kind::Start, "").context(what)?;
    // SAFETY: until its exec the child only makes system calls, and the parent made all that it needs before.
    match unsafe { fork() }.context(what)? {
        ForkResult::Parent { child } => Ok(Waiting {
            child,
            go,
            _wait: wait,
        }),
        ForkResult::Child => {
            drop(go);
            let mut byte = [0u8];
            // The end of the file means that the parent is gone, and with it the reason to begin.
            let told = nix::unistd::read(&wait, &mut byte) == Ok(1);
            let is_ready = told
                && nix::unistd::setsid().is_ok()
                && dup2_stdin(&null).is_ok()
                && dup2_stdout(&image.log).is_ok()
                && dup2_stderr(&image.log).is_ok()
                && nix::unistd::chdir("/").is_ok();
            if is_ready {
                nix::sys::stat::umask(Mode::S_IWGRP | Mode::S_IWOTH);
                // SAFETY: the call takes numbers alone. A timer may have lowered the priority.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
                for fd in open.iter().filter(|fd| **fd > 2) {
                    // SAFETY: the child uses none of these numbers again.
                    unsafe { libc::close(*fd) };
                }
                for signal in 1..=64 {
                    // SAFETY: the default disposition runs no code of this program.
                    unsafe { libc::signal(signal, libc::SIG_DFL) };
                }
                let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
                // SAFETY: both lists end with a null pointer, and their strings live in `image`.
                unsafe {
                    libc::execve(
                        image.program.as_ptr(),
                        arguments.as_ptr(),
                        environment.as_ptr(),
                    )
                };
            }
            // SAFETY: ends the child at once, without the parent's exit handlers.
            unsafe { libc::_exit(127) }
        }
    }
}

/// Lets a program inherit its standard descriptors alone, and end with this process: an engine waits until all
/// holders of its descriptors have closed them.
pub(super) fn leave_descriptors(command: &mut Command) {
    let end_and_close = || {
        let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
        // SAFETY: the call takes numbers alone, and only sets close-on-exec.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, CLOSE_ON_EXEC) };
        Ok(())
    };
    // SAFETY: two system calls between fork and exec.
    unsafe { command.pre_exec(end_and_close) };
}

impl Waiting {
    /// Returns the child's process, which stays the same when it begins.
    pub(super) fn process(&self) -> Result<Process> {
        let pid = self.child.as_raw();
        process::of(pid).ok_or_else(|| Error::new(format!("process {pid} is gone")))
    }

    /// Lets the child begin.
    pub(super) fn begin(self) -> Result<Pid> {
        effect::write_all(&mut File::from(self.go), b"g").context(|| "start the MPS daemon")?;
        Ok(self.child)
    }
}

/// Says how a child ended, if it has.
pub(super) fn ended(child: Pid) -> Option<String> {
    match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, status)) => Some(format!("exited with status {status}")),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(format!("was killed by {signal}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::wait::{Id, waitid};

    /// Returns a program that runs a script, and its log.
    fn shell(script: &str) -> (tempfile::TempDir, Image) {
        let dir = tempfile::tempdir().unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let text = |text: &str| CString::new(text).unwrap();
        let image = Image {
            program: text("/bin/sh"),
            arguments: ["sh", "-c", script].map(text).into(),
            environment: vec![text("PATH=/usr/bin:/bin"), text("GIVEN=all")],
            log,
        };
        (dir, image)
    }

    fn end_of(child: Pid) -> Option<String> {
        waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        ended(child)
    }

    #[test]
    fn daemon_has_nothing_of_its_starter() {
        let (dir, image) = shell(
            "echo $GIVEN $HOME; pwd; umask; readlink /proc/$$/fd/0; ls /proc/$$/fd\n\
             set -- $(cat /proc/$$/stat); [ $6 = $$ ] && echo leads >&2; exit 3",
        );
        let inherited = nix::unistd::dup(&image.log).unwrap();
        let waiting = fork_waiting(&image).unwrap();
        let process = waiting.process().unwrap();
        assert_eq!(ended(waiting.child), None);
        let child = waiting.begin().unwrap();
        assert_eq!(child.as_raw(), process.pid);
        assert_eq!(end_of(child).unwrap(), "exited with status 3");
        drop(inherited);
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert_eq!(log, "all\n/\n0022\n/dev/null\n0\n1\n2\nleads\n");
    }

    #[test]
    fn child_that_is_not_to_begin_ends() {
        let (dir, image) = shell("echo begun");
        let Waiting { child, go, _wait } = fork_waiting(&image).unwrap();
        drop((go, _wait));
        assert_eq!(end_of(child).unwrap(), "exited with status 127");
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert_eq!(log, "");
        let child = fork_waiting(&shell("kill -9 $$").1)
            .unwrap()
            .begin()
            .unwrap();
        assert_eq!(end_of(child).unwrap(), "was killed by SIGKILL");
    }
}
