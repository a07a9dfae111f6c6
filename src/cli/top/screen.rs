//! The terminal while a page is on it: raw, without a cursor, on its second screen. It gets its old state back when
//! the screen is dropped, and at a panic. A terminal that takes no output delays no signal.

use super::page::{Line, Style};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use runmig_lease::error::{Context, Result};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, Once, PoisonError};

/// Second screen, no cursor, no line break of the terminal's own: a line that is too wide ends at the edge.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// The time in which a terminal takes its old state back, in milliseconds.
const LAST_WORDS: u16 = 1000;
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal and its old state, while a page is on it. A panic anywhere restores it.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

struct Taken {
    terminal: OwnedFd,
    before: Termios,
}

/// A terminal with a page on it.
pub struct Screen<'s> {
    terminal: OwnedFd,
    has_colours: bool,
    /// The signals that end a wait for the terminal.
    signals: BorrowedFd<'s>,
    /// The rest of what such a signal cut.
    unsent: Vec<u8>,
}

impl<'s> Screen<'s> {
    /// Takes a terminal.
    ///
    /// # Errors
    /// It is no terminal, or nobody reads it.
    pub fn on(
        terminal: BorrowedFd<'_>,
        has_colours: bool,
        signals: BorrowedFd<'s>,
    ) -> Result<Screen<'s>> {
        let what = || "prepare the terminal";
        let own = opened_anew(terminal).context(what)?;
        let before = tcgetattr(terminal).context(what)?;
        restore_at_panic();
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Taken {
            terminal: own.try_clone().context(what)?,
            before,
        });
        let mut screen = Screen {
            terminal: own,
            has_colours,
            signals,
            unsent: Vec::new(),
        };
        screen.enter()?;
        Ok(screen)
    }

    /// Prepares the terminal, also again after another program had it.
    pub fn enter(&mut self) -> Result<()> {
        let what = || "prepare the terminal";
        let mut raw = tcgetattr(&self.terminal).context(what)?;
        cfmakeraw(&mut raw);
        // Not after all output: it may never go.
        tcsetattr(&self.terminal, SetArg::TCSANOW, &raw).context(what)?;
        self.unsent.extend_from_slice(ENTER.as_bytes());
        self.send().map(drop).context(what)
    }

    /// Shows the lines, from the first row on. A signal cuts the page, and the next call sends the rest of it before its own.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn show(&mut self, lines: &[Line]) -> Result<()> {
        let what = || "write to the terminal";
        if self.send().context(what)? {
            self.unsent = drawn(lines, self.has_colours).into_bytes();
            self.send().context(what)?;
        }
        Ok(())
    }

    /// Writes what is unsent. Returns whether all is sent; otherwise a signal has come.
    fn send(&mut self) -> nix::Result<bool> {
        let (terminal, signals) = (self.terminal.as_fd(), self.signals);
        write(terminal, &mut self.unsent, || {
            let mut fds = [
                PollFd::new(signals, PollFlags::POLLIN),
                PollFd::new(terminal, PollFlags::POLLOUT),
            ];
            poll(&mut fds, PollTimeout::NONE)?;
            Ok(!fds[0].any().unwrap_or(false))
        })
    }
}

/// Opens a terminal once more. The other opening is also the shell's, which would not wait for it either.
fn opened_anew(terminal: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
    let opened = File::options()
        .write(true)
        .custom_flags(flags.bits())
        .open(path);
    match opened {
        Ok(file) => Ok(file.into()),
        // A terminal of another user, or no /proc.
        Err(_) => terminal.try_clone_to_owned(),
    }
}

impl AsFd for Screen<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its old state. A terminal that is gone needs none.
fn restore() {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Taken { terminal, before }) = taken {
        let _ = tcsetattr(&terminal, SetArg::TCSANOW, &before);
        let _ = write(terminal.as_fd(), &mut LEAVE.into(), || {
            let mut fds = [PollFd::new(terminal.as_fd(), PollFlags::POLLOUT)];
            Ok(poll(&mut fds, LAST_WORDS)? > 0)
        });
    }
}

/// Restores the terminal before the message of a panic. A release build ends there, without a drop.
fn restore_at_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}

/// Writes a text, and takes from it what is written. Returns false if the terminal takes no more, and the wait for room says
/// that it ends.
fn write(
    terminal: BorrowedFd<'_>,
    text: &mut Vec<u8>,
    has_room: impl Fn() -> nix::Result<bool>,
) -> nix::Result<bool> {
    while !text.is_empty() {
        let written = nix::unistd::write(terminal, text);
        match written.map(|count| drop(text.drain(..count))) {
            Err(Errno::EAGAIN) => match has_room() {
                Ok(false) => return Ok(false),
                Ok(true) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            },
            Ok(()) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// Returns what a terminal gets for these lines. Each line removes the rest of its row.
fn drawn(lines: &[Line], has_colours: bool) -> String {
    let mut text = String::from("\x1b[H");
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            text.push_str("\r\n");
        }
        let colour = match line.style {
            Style::Head => "\x1b[1m",
            Style::Alarm => "\x1b[31m",
            Style::Plain => "",
        };
        match has_colours && !colour.is_empty() {
            true => text.push_str(&format!("{colour}{}\x1b[0m", line.text)),
            false => text.push_str(&line.text),
        }
        text.push_str("\x1b[K");
    }
    text.push_str("\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;
    use nix::sys::termios::LocalFlags;
    use std::io::Read;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn panic_restores_terminal() {
        let pty = openpty(None, None).unwrap();
        let local = || tcgetattr(&pty.slave).unwrap().local_flags;
        let before = local();
        assert!(before.contains(LocalFlags::ICANON | LocalFlags::ECHO));
        let screen = Screen::on(pty.slave.as_fd(), false, pty.slave.as_fd()).unwrap();
        assert!(!local().intersects(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            // In a release build a panic ends the process, and drops nothing.
            std::mem::forget(screen);
            panic!("a fault");
        }));
        assert!(ended.is_err());
        assert_eq!(local(), before);
        // The kernel hands over the two writes one after the other.
        let expected = format!("{ENTER}{LEAVE}");
        let mut sent = vec![0; expected.len()];
        std::fs::File::from(pty.master)
            .read_exact(&mut sent)
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&sent), expected);
    }

    #[test]
    fn colours_are_optional() {
        let lines = [Line {
            text: "title".to_owned(),
            style: Style::Head,
        }];
        assert_eq!(drawn(&lines, false), "\x1b[Htitle\x1b[K\x1b[J");
        assert!(drawn(&lines, true).contains("\x1b[1mtitle\x1b[0m"));
    }
}
