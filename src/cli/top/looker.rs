//! Looks at the machine in a thread of its own, so that a driver that hangs leaves the keys alone.

use super::facts::Facts;
use nix::sys::eventfd::{EfdFlags, EventFd};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// A thread that looks on demand. It stays behind in a driver that hangs, until this process ends.
pub struct Looker {
    asks: Sender<()>,
    answers: Receiver<Facts>,
    /// Readable while an answer waits.
    ready: Arc<EventFd>,
    /// The start of the look at work.
    since: Option<Instant>,
}

impl Looker {
    pub fn new(config: &Config) -> Result<Looker> {
        let what = || "start a thread for the driver";
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let ready = Arc::new(EventFd::from_value_and_flags(0, flags).context(what)?);
        let (asks, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let (its, config) = (ready.clone(), config.clone());
        let look = move || {
            for () in asked {
                if answer.send(Facts::look(&config)).is_err() {
                    return;
                }
                let _ = its.write(1);
            }
        };
        let thread = std::thread::Builder::new().name("looker".to_owned());
        thread.spawn(look).context(what)?;
        Ok(Looker {
            asks,
            answers,
            ready,
            since: None,
        })
    }

    /// Begins a look, unless one is at work.
    pub fn look(&mut self) {
        if self.since.is_none() {
            // A thread that has panicked leaves the look without an answer.
            let _ = self.asks.send(());
            self.since = Some(Instant::now());
        }
    }

    /// Returns the time for which a look is at work.
    pub fn busy(&self) -> Option<Duration> {
        self.since.map(|since| since.elapsed())
    }

    /// Returns the answer, if it has come.
    pub fn take(&mut self) -> Option<Facts> {
        let _ = self.ready.read();
        let facts = self.answers.try_recv().ok()?;
        self.since = None;
        Some(facts)
    }

    fn wait(&mut self, limit: Duration) -> Option<Facts> {
        self.answers.recv_timeout(limit).ok()
    }
}

impl AsFd for Looker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// Looks once. After the time limit the ledger alone tells.
pub fn within(config: &Config, limit: Duration) -> Facts {
    let mut looker = match Looker::new(config) {
        Ok(looker) => looker,
        Err(e) => return Facts::of_ledger(config, Some(e.line())),
    };
    looker.look();
    let facts = looker.wait(limit);
    facts.unwrap_or_else(|| Facts::of_ledger(config, Some(silence(limit))))
}

/// Names a driver that does not answer.
pub fn silence(time: Duration) -> String {
    format!(
        "the driver has not answered for {}; hint: migctl doctor --only driver",
        humantime::format_duration(Duration::from_secs(time.as_secs()))
    )
}
