//! Starts the control program as a daemon: a child that waits until its process is on record.

use crate::error::{Context, Error, Result};
use crate::model::Process;
use crate::process;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;

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
    child: Child,
    go: OwnedFd,
}

/// A child that has begun.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
}

/// Forks the child, with a session of its own and none of this process's descriptors: an engine waits until all
/// holders of its own have closed them.
pub(super) fn fork_waiting(image: &Image) -> Result<Waiting> {
    let what = || format!("start {}", image.program.to_string_lossy());
    let null = File::open("/dev/null").context(what)?;
    let pointers = |all: &[CString]| -> Vec<*const libc::c_char> {
        { all.iter().map(|text| text.as_ptr()) }
            .chain([std::ptr::null()])
            .collect()
    };
    let (arguments, environment) = (pointers(&image.arguments), pointers(&image.environment));
    let (wait, go) = pipe2(OFlag::O_CLOEXEC).context(what)?;
    let open = open_descriptors().context(what)?;
    // SAFETY: this process has one thread. Until its exec the child only makes system calls, and the parent
    // made all that it needs before.
    match unsafe { fork() }.context(what)? {
        ForkResult::Parent { child } => Ok(Waiting {
            child: Child { pid: child },
            go,
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

fn open_descriptors() -> std::io::Result<Vec<i32>> {
    let entries = std::fs::read_dir("/proc/self/fd")?.flatten();
    Ok(entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect())
}

impl Waiting {
    /// Returns the child's process, which stays the same when it begins.
    pub(super) fn process(&self) -> Result<Process> {
        let pid = self.child.pid.as_raw();
        process::of(pid).ok_or_else(|| Error::new(format!("process {pid} is gone")))
    }

    /// Lets the child begin.
    pub(super) fn begin(self) -> Result<Child> {
        nix::unistd::write(&self.go, b"g").context(|| "start the MPS daemon")?;
        Ok(self.child)
    }
}

impl Child {
    /// Returns the end of the child in words, if it has ended.
    pub(super) fn ended(&self) -> Option<String> {
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, status)) => Some(format!("exited with status {status}")),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(format!("was killed by {signal}")),
            _ => None,
        }
    }
}
