//! The terminal while a page is on it: raw, without a cursor, on its second screen. It gets its old state back when
//! the screen is dropped, and at a panic.

use super::page::{Line, Style};
use nix::errno::Errno;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use runmig_lease::error::{Context, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

/// Second screen, no cursor, no line break of the terminal's own: a line that is too wide ends at the edge.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal and its old state, while a page is on it. A panic anywhere restores it.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

struct Taken {
    terminal: OwnedFd,
    before: Termios,
}

/// A terminal with a page on it.
pub struct Screen {
    terminal: OwnedFd,
    has_colours: bool,
}

impl Screen {
    /// Takes a terminal.
    ///
    /// # Errors
    /// It is no terminal, or nobody reads it.
    pub fn on(terminal: BorrowedFd<'_>, has_colours: bool) -> Result<Screen> {
        let what = || "prepare the terminal";
        let copy = || terminal.try_clone_to_owned().context(what);
        let screen = Screen {
            terminal: copy()?,
            has_colours,
        };
        let before = tcgetattr(terminal).context(what)?;
        restore_at_panic();
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Taken {
            terminal: copy()?,
            before,
        });
        screen.enter()?;
        Ok(screen)
    }

    /// Prepares the terminal, also again after another program had it.
    pub fn enter(&self) -> Result<()> {
        let what = || "prepare the terminal";
        let mut raw = tcgetattr(&self.terminal).context(what)?;
        cfmakeraw(&mut raw);
        tcsetattr(&self.terminal, SetArg::TCSADRAIN, &raw).context(what)?;
        write(&self.terminal, ENTER).context(what)
    }

    /// Shows the lines, from the first row on, in one write.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn show(&self, lines: &[Line]) -> Result<()> {
        let text = drawn(lines, self.has_colours);
        write(&self.terminal, &text).context(|| "write to the terminal")
    }
}

impl AsFd for Screen {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its old state. A terminal that is gone needs none.
fn restore() {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Taken { terminal, before }) = taken {
        let _ = tcsetattr(&terminal, SetArg::TCSANOW, &before);
        let _ = write(&terminal, LEAVE);
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

fn write(terminal: &OwnedFd, text: &str) -> nix::Result<()> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match nix::unistd::write(terminal, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
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
        let screen = Screen::on(pty.slave.as_fd(), false).unwrap();
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
