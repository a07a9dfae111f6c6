//! A pseudo terminal with migctl top on it, and the screen that its user sees.

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use testkit::Setup;
use testkit::process::until;

const LIMIT: Duration = Duration::from_secs(60);

pub struct Terminal {
    master: Option<File>,
    slave: File,
    child: Child,
    /// All that was sent, and the rows of the screen.
    pub sent: String,
    rows: Vec<String>,
}

fn set_size(terminal: &File, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the descriptor is open, and the call reads one `winsize`.
    let set = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    assert_eq!(set, 0);
}

impl Terminal {
    /// Starts `migctl top` on a new terminal, with these arguments and variables.
    pub fn top(
        setup: &Setup,
        (rows, columns): (u16, u16),
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Terminal {
        // No program that another test starts may inherit the master, or the terminal would outlive it.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NOCTTY.bits())
            .open(ptsname_r(&master).unwrap())
            .unwrap();
        set_size(&slave, rows, columns);
        let master = File::from(OwnedFd::from(master));
        let mut command: Command = setup.plain(&setup.program("migctl"));
        let end = || slave.try_clone().unwrap();
        command
            .arg("top")
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end());
        let child = command.spawn().unwrap();
        Terminal {
            master: Some(master),
            slave,
            child,
            sent: String::new(),
            rows: Vec::new(),
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn modes(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    pub fn is_raw(&self) -> bool {
        !self.modes().local_flags.contains(LocalFlags::ICANON)
    }

    /// Returns whether much of what was sent is unread.
    pub fn is_full(&self) -> bool {
        let master = self.master.as_ref().unwrap();
        let mut unread: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the call writes one number.
        let asked = unsafe { libc::ioctl(master.as_raw_fd(), libc::FIONREAD, &mut unread) };
        assert_eq!(asked, 0);
        unread > 2000
    }

    pub fn press(&mut self, keys: &str) {
        let mut master = self.master.as_ref().unwrap();
        master.write_all(keys.as_bytes()).unwrap();
    }

    /// Changes the size, as a user does who drags the window. The kernel sends the signal to the terminal's foreground
    /// group, of which a test's child is none.
    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.slave, rows, columns);
        self.signal(nix::sys::signal::Signal::SIGWINCH);
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Closes the window.
    pub fn close(&mut self) {
        self.master = None;
    }

    /// Reads what was sent, and returns whether something was.
    fn read(&mut self, timeout: u16) -> bool {
        let Some(master) = &mut self.master else {
            return false;
        };
        let mut fds = [PollFd::new(master.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(timeout)).unwrap();
        if !fds[0].revents().unwrap().contains(PollFlags::POLLIN) {
            return false;
        }
        let mut bytes = [0; 65536];
        let length = master.read(&mut bytes).unwrap_or(0);
        self.sent
            .push_str(&String::from_utf8_lossy(&bytes[..length]));
        // A page begins at the first row, and its end removes all below.
        if let Some(page) = self
            .sent
            .rsplit("\x1b[H")
            .find(|page| page.contains("\x1b[J"))
        {
            let page = page.split("\x1b[J").next().unwrap();
            let rows = page.split("\r\n").map(|row| row.replace("\x1b[K", ""));
            self.rows = rows.collect();
        }
        length > 0
    }

    /// Returns the screen as soon as it is so.
    #[track_caller]
    pub fn until(&mut self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + LIMIT;
        loop {
            self.read(50);
            if is_so(&self.rows) {
                return self.rows.clone();
            }
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < end,
                "never: {what} ({ended:?})\n{}\n{:?}",
                self.rows.join("\n"),
                self.sent.get(self.sent.len().saturating_sub(500)..)
            );
        }
    }

    #[track_caller]
    pub fn until_shown(&mut self, words: &str) -> Vec<String> {
        self.until(words, |rows| rows.iter().any(|row| row.contains(words)))
    }

    /// Waits for the end, and reads nothing.
    #[track_caller]
    pub fn end_unread(&mut self) -> ExitStatus {
        let mut ended = None;
        until("migctl top ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Waits for the end.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let mut ended = None;
        until("migctl top ends", || {
            while self.read(0) {}
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        while self.read(0) {}
        ended.unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
