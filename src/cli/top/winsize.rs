//! The size of a terminal, for which no safe function speaks.

use super::page::Size;
use std::os::fd::{AsFd, AsRawFd};

/// The size of a terminal that does not tell its own.
const USUAL: (u16, u16) = (24, 80);

/// Returns the size of a terminal.
pub fn size(terminal: impl AsFd) -> Size {
    let mut told = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the call writes one `winsize` to the pointer, which is valid and exclusive; the descriptor is open.
    let answer = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut told) };
    let (rows, columns) = match (answer, told.ws_row, told.ws_col) {
        (0, rows @ 1.., columns @ 1..) => (rows, columns),
        _ => USUAL,
    };
    Size {
        rows: Some(rows.into()),
        columns: Some(columns.into()),
    }
}
