//! The process that stands for a container's init: in a session of its own, for as long as the test
//! that it belongs to.

use crate::Failure;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The test's process: init ends with it, however it ends.
const TEST: &str = "STUB_RUNTIME_TEST_PID";

#[derive(Clone, Copy)]
pub struct Init {
    pub pid: i32,
    pub start_time: u64,
}

pub fn start() -> Result<Init, Failure> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("init")
        .arg("init")
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

/// What init does: it waits for the end of its test.
pub fn main() -> ! {
    // Whoever waits for the end of all that an engine's call started does not wait for containers.
    // SAFETY: nothing has been opened yet, so these descriptors are nobody's.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    let test: Option<i32> = std::env::var(TEST).ok().and_then(|pid| pid.parse().ok());
    if let Some(test) = test {
        // SAFETY: no pointers; a descriptor or -1 comes back.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, test, 0) };
        if let Ok(fd) = i32::try_from(fd)
            && fd >= 0
        {
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

/// Of a process that is no zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
