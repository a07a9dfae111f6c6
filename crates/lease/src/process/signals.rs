//! Sets the signals whose inherited disposition would break a call, and restores them for the next program.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::OnceLock;

/// The disposition of SIGXFSZ when this process began.
static INHERITED: OnceLock<SigAction> = OnceLock::new();

fn set(signal: Signal, handler: SigHandler) -> Option<SigAction> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: neither disposition runs code of runmig.
    unsafe { sigaction(signal, &action) }.ok()
}

/// Makes a write beyond `RLIMIT_FSIZE` fail with EFBIG. By default the kernel would end the process between
/// two steps.
pub fn survive_file_limit() {
    if let Some(before) = set(Signal::SIGXFSZ, SigHandler::SigIgn) {
        let _ = INHERITED.set(before);
    }
}

/// Undoes `survive_file_limit` for the program that this process becomes. Async-signal-safe: one system
/// call.
pub fn hand_on_file_limit() {
    if let Some(before) = INHERITED.get() {
        // SAFETY: this process began with the disposition, so it runs no code of runmig.
        let _ = unsafe { sigaction(Signal::SIGXFSZ, before) };
    }
}

/// Lets this process wait for its children. It cannot wait if its parent left SIGCHLD ignored.
pub fn wait_for_children() {
    set(Signal::SIGCHLD, SigHandler::SigDfl);
}
