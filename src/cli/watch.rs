//! `--watch`: prints again at each change of the ledger.

use super::output::{self, Output};
use nix::sys::signal::{SigSet, Signal};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result};
use runmig_lease::store::Changes;
use std::os::fd::AsFd;

/// Prints now and at each change of the ledger, until a signal comes or nobody reads any more.
///
/// # Errors
/// The ledger cannot be watched or read.
pub fn at_each_change(
    config: &Config,
    output: Output,
    mut print: impl FnMut() -> Result<i32>,
) -> Result<i32> {
    end_at_signals()?;
    let mut changes = Changes::of(&config.state_dir)?;
    let stdout = std::io::stdout();
    loop {
        let status = print()?;
        if !changes.wait_beside(stdout.as_fd())? {
            return Ok(status);
        }
        if output != Output::Json {
            output::line("");
        }
    }
}

/// Ends this process with status 0 at the next signal that asks for its end, even while a driver hangs.
fn end_at_signals() -> Result<()> {
    let what = || "wait for signals";
    let ends = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    ends.thread_block().context(what)?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let wait = move || {
        let _ = ends.wait();
        std::process::exit(0);
    };
    thread.spawn(wait).map(drop).context(what)
}
