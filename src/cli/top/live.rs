//! The loop of the page: keys, signals, changes of the ledger, answers of the driver, and time.

use super::DRIVER_LIMIT;
use super::facts::Facts;
use super::keys;
use super::looker::{Looker, silence};
use super::page::{Page, page};
use super::screen::Screen;
use super::view::View;
use super::winsize::size;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result};
use runmig_lease::store::{Changes, RECORDS_AND_QUEUE};
use std::io::{Stdin, stdin, stdout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

/// The time after a change of the ledger in which more changes come.
const JOIN: Duration = Duration::from_millis(100);
/// The most bytes of keys at once.
const KEYS: usize = 256;

/// Shows the page until the user or a signal ends it. A terminal that goes ends it too.
pub fn run(config: &Config, view: View, delay: Duration) -> Result<i32> {
    // The threads to come inherit the blocked signals.
    let signals = signals()?;
    // Without the kernel's reports the time alone draws again.
    let changes = Changes::of(&config.state_dir, RECORDS_AND_QUEUE).ok();
    let looker = Looker::new(config)?;
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let mut live = Live {
        config,
        view,
        delay,
        changes,
        looker,
        due: Instant::now(),
        changed: false,
        facts: Facts::of_ledger(config, None),
        shown: Page::default(),
        keys: stdin(),
        screen: Screen::on(stdout().as_fd(), has_colours, signals.as_fd())?,
    };
    while live.turn(&signals)? {}
    Ok(0)
}

fn signals() -> Result<SignalFd> {
    let what = || "wait for signals";
    let signals = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGWINCH,
        Signal::SIGCONT,
    ];
    let signals: SigSet = signals.into_iter().collect();
    signals.thread_block().context(what)?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    SignalFd::with_flags(&signals, flags).context(what)
}

struct Live<'a> {
    config: &'a Config,
    view: View,
    delay: Duration,
    changes: Option<Changes>,
    looker: Looker,
    /// The time of the next look.
    due: Instant,
    /// Whether the ledger changed during the look at work.
    changed: bool,
    facts: Facts,
    shown: Page,
    keys: Stdin,
    /// Dropped last: the terminal gets its old state back.
    screen: Screen<'a>,
}

impl Live<'_> {
    /// Waits for an event and follows it. Returns whether the page goes on.
    fn turn(&mut self, signals: &SignalFd) -> Result<bool> {
        let (keys, ended) = {
            let always = [self.keys.as_fd(), signals.as_fd(), self.looker.as_fd()];
            let changes = self.changes.iter().map(Changes::as_fd);
            let fds = always.into_iter().chain(changes);
            let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut fds, self.timeout()) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context(|| "wait for events"),
            }
            let events = fds[0].revents().unwrap_or(PollFlags::empty());
            let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
            (events.contains(PollFlags::POLLIN), events.intersects(gone))
        };
        if ended || !self.follow(signals)? || (keys && !self.press()) {
            return Ok(false);
        }
        if self.has_changed() {
            self.changed = true;
            self.due = self.due.min(Instant::now() + JOIN);
        }
        if let Some(facts) = self.looker.take() {
            self.facts = facts;
            let next = if self.changed { JOIN } else { self.delay };
            self.due = Instant::now() + next;
        }
        self.look();
        Ok(self.draw())
    }

    /// Returns whether the ledger changed. A watch that fails is left.
    fn has_changed(&mut self) -> bool {
        let taken = self.changes.as_mut().map(Changes::take);
        if taken.as_ref().is_some_and(Result::is_err) {
            self.changes = None;
        }
        matches!(taken, Some(Ok(true)))
    }

    /// Begins a look when its time has come. A driver that has been silent for long leaves the ledger.
    fn look(&mut self) {
        if Instant::now() < self.due {
            return;
        }
        match self.looker.busy() {
            None => {
                self.changed = false;
                self.looker.look();
            }
            Some(time) if time >= DRIVER_LIMIT => {
                self.facts = Facts::of_ledger(self.config, Some(silence(time)));
            }
            Some(_) => {}
        }
        // A driver that is silent is named in time, also with a long delay.
        let next = match self.looker.busy() {
            Some(_) => self.delay.min(DRIVER_LIMIT),
            None => self.delay,
        };
        self.due = Instant::now() + next;
    }

    fn timeout(&self) -> PollTimeout {
        let left = self.due.saturating_duration_since(Instant::now());
        // The timeout is rounded up: a zero timeout would keep the processor busy for the rest.
        PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX)
    }

    /// Follows the signals until now. Returns whether none asks for the end.
    fn follow(&mut self, signals: &SignalFd) -> Result<bool> {
        while let Some(signal) = signals.read_signal().context(|| "read signals")? {
            match i32::try_from(signal.ssi_signo).map(Signal::try_from) {
                Ok(Ok(Signal::SIGWINCH)) => {}
                // Another program may have had the terminal.
                Ok(Ok(Signal::SIGCONT)) => self.screen.enter()?,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Follows the pressed keys. Returns whether none asks for the end.
    fn press(&mut self) -> bool {
        let mut bytes = [0; KEYS];
        match nix::unistd::read(&self.keys, &mut bytes) {
            Ok(0) => false,
            Ok(length) => { keys::parse(&bytes[..length]).into_iter() }
                .all(|key| self.view.press(key, &self.shown, &self.facts)),
            Err(e) => matches!(e, Errno::EAGAIN | Errno::EINTR),
        }
    }

    /// Draws the page. Returns whether the terminal is still there.
    fn draw(&mut self) -> bool {
        let size = size(&self.screen);
        self.shown = page(&self.facts, &self.view, size, SystemTime::now());
        self.view.offset = self.shown.offset;
        self.screen.show(&self.shown.lines).is_ok()
    }
}
