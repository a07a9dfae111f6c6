//! The process that stands for a container's init: in a session of its own, for as long as the test
//! that it belongs to.

use crate::Failure;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The test's process: init ends with it, however it ends. If the environment is not the test's,
/// the file `test` of the root names it.
const TEST: &str = "STUB_RUNTIME_TEST_PID";

#[derive(Clone, Copy)]
pub struct Init {
    pub pid: i32,
    pub start_time: u64,
}

/// `test` is the process that init ends with, unless the environment names another.
pub fn start(test: Option<String>) -> Result<Init, Failure> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("init")
        .arg("init")
        .args(std::env::var(TEST).ok().or(test))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: between fork and exec the child makes one system call.
    unsafe { command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?)) };
    let child = command.spawn()?;
    let pid = i32::try_from(child.id())?;
    let start_time = start_time(pid).ok_or("init died at once")?;
    Ok(Init { pid, start_time })
}

/// Runs init, which waits for the end of its test.
pub fn main() -> ! {
    close_inherited();
    let test: Option<i32> = std::env::args().nth(2).and_then(|pid| pid.parse().ok());
    if let Some(test) = test {
        // SAFETY: no pointers; a descriptor or -1 comes back.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, test, 0) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 && nix::errno::Errno::last() != nix::errno::Errno::ESRCH {
            // A kernel without pidfds.
            let test = nix::unistd::Pid::from_raw(test);
            while nix::sys::signal::kill(test, None).is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        if fd >= 0 {
            let mut wanted = libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid pollfd.
            unsafe { libc::poll(&raw mut wanted, 1, -1) };
        }
    }
    std::process::exit(0)
}

/// Closes the caller's pipes: a wait for the end of all that a call started is no wait for containers.
fn close_inherited() {
    // SAFETY: nothing has been opened yet, so no file has these descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if closed != 0 {
        // SAFETY: as above. No more than this is ever open in a test.
        let close = |fd| unsafe { libc::close(fd) };
        (3..1024).for_each(|fd| _ = close(fd));
    }
}

pub fn is_alive(init: Init) -> bool {
    start_time(init.pid) == Some(init.start_time)
}

/// Dead when this returns.
pub fn kill(init: Init) {
    if is_alive(init) {
        let pid = nix::unistd::Pid::from_raw(init.pid);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL);
    }
    wait_for_end(init);
}

pub fn wait_for_end(init: Init) {
    while is_alive(init) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fails where nothing can be found out about a process, as runc does.
pub fn check_proc() -> Result<(), Failure> {
    let us = std::process::id().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(link) if link.as_os_str() == us.as_str() => Ok(()),
        Ok(_) => Err("/proc is of another pid namespace".into()),
        Err(e) => Err(format!("/proc/self: {e}").into()),
    }
}

/// Returns the start time of a process that is no zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
