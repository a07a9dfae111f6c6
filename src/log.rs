//! Logs actions and failures for people, in `runmig.log` in the state directory. Only calls that concern a
//! slice write to it.

use runmig_lease::config::Config;
use std::sync::Mutex;

/// Starts the log. A log that cannot be written is no reason to fail.
pub fn start(config: &Config) {
    if let Some(opened) = runmig_lease::log::open(&config.state_dir) {
        let _ = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_target(false)
            // Engines show one line of standard error. A full disk must not add another.
            .log_internal_errors(false)
            .with_writer(Mutex::new(opened))
            .try_init();
    }
}
