//! `migctl top`: the machine on one page, drawn again at each change. `page` is pure; this file is the edge: terminal,
//! signals, kernel and driver.

mod page;

use super::{driver, output, world};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use page::{Facts, Page, View, page};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::disable_raw_mode;
use ratatui::text::Text;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result};
use runmig_lease::store::Changes;
use std::io::{self, IsTerminal, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The time between two looks at what has happened.
const TICK: Duration = Duration::from_millis(100);
/// The time in which the page ends by itself, once it has to.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// A signal asks for the end, or the terminal is gone.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    view: View,
    /// The time between two looks at the driver while the ledger does not change: at least 100ms
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    delay: Duration,
    /// Print one page and end
    #[arg(long)]
    once: bool,
}

pub fn run(config: &Config, options: &Options) -> Result<i32> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if options.once || is_dumb || !stdin().is_terminal() || !stdout().is_terminal() {
        return Ok(once(config, &options.view));
    }
    end_in_time()?;
    // It restores the terminal at a panic too.
    let mut terminal = ratatui::try_init().context(|| "prepare the terminal")?;
    // An error is that of a terminal that is gone.
    let _ = show(config, options, &mut terminal);
    ratatui::restore();
    Ok(0)
}

/// Prints one page, as long and as wide as it is. Returns the status.
fn once(config: &Config, view: &View) -> i32 {
    let facts = look(config);
    for line in page(&facts, view, None, SystemTime::now()).lines {
        output::line(&line.to_string());
    }
    facts.complaints.iter().for_each(|why| output::eprint(why));
    i32::from(!facts.complaints.is_empty())
}

/// Waits for signals and the end of the terminal in a thread of its own. The page may be stuck in a terminal that takes no
/// output, and crossterm reads one that is gone without an end: then the process ends without the page.
fn end_in_time() -> Result<()> {
    use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let what = || "wait for signals";
    let ends: SigSet = [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().collect();
    // The threads to come inherit the blocked signals.
    ends.thread_block().context(what)?;
    let signals = SignalFd::new(&ends).context(what)?;
    let waits = move || {
        let stdin = stdin();
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(stdin.as_fd(), PollFlags::empty()),
        ];
        while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
        HAS_ENDED.store(true, Ordering::Relaxed);
        thread::sleep(LAST_WORDS);
        let _ = disable_raw_mode();
        std::process::exit(0);
    };
    thread::Builder::new().spawn(waits).context(what)?;
    Ok(())
}

/// Shows the page until the user, a signal or the terminal ends it.
fn show(config: &Config, options: &Options, terminal: &mut DefaultTerminal) -> io::Result<()> {
    let (mut view, mut shown) = (options.view.clone(), Page::default());
    let delay = options.delay.max(TICK);
    // Without the kernel's reports time alone draws again.
    let mut changes = Changes::of(&config.state_dir).ok();
    let (answer, looked) = mpsc::channel();
    let mut facts = of_ledger(config, None);
    let (mut has_changed, mut is_looking, mut is_new) = (true, false, true);
    let mut began = Instant::now();
    while !HAS_ENDED.load(Ordering::Relaxed) {
        if is_new {
            terminal.draw(|frame| {
                let size = frame.area().as_size();
                shown = page(&facts, &view, Some(size), SystemTime::now());
                frame.render_widget(Text::from(shown.lines.clone()), frame.area());
            })?;
            view.offset = shown.offset;
        }
        is_new = event::poll(TICK)?;
        if is_new && matches!(event::read()?, Event::Key(key) if !view.press(key, &shown)) {
            return Ok(());
        }
        let change = changes.as_mut().map(Changes::take);
        has_changed |= matches!(change, Some(Ok(true)));
        if let Ok(new) = looked.try_recv() {
            (facts, is_looking, is_new) = (new, false, true);
        } else if !is_looking && (has_changed || began.elapsed() >= delay) {
            (has_changed, is_looking, began) = (false, true, Instant::now());
            look_aside(config, &answer);
        }
    }
    Ok(())
}

/// Looks at the machine in a thread of its own, so that a driver that hangs leaves the keys alone.
fn look_aside(config: &Config, answer: &Sender<Facts>) {
    let (its, told) = (config.clone(), answer.clone());
    let looks = move || drop(told.send(look(&its)));
    if let Err(e) = thread::Builder::new().spawn(looks) {
        let why = format!("cannot look at the driver: {e}");
        drop(answer.send(of_ledger(config, Some(why))));
    }
}

/// Asks the driver and reads the ledger. The session with the driver ends with this call, since an open one may keep an
/// instance in use.
fn look(config: &Config) -> Facts {
    let driver = driver::ask(config);
    let inventory = match Inventory::look(config, &driver) {
        Ok(inventory) => inventory,
        Err(e) => return of_ledger(config, Some(e.line())),
    };
    let states = inventory.snapshot.gpus.iter();
    let states = states.map(|gpu| inventory.use_of(&driver, gpu));
    Facts {
        gpus: states.collect(),
        uses: runmig_lease::uses(&driver, &inventory.leases),
        complaints: world::unread(&inventory),
        inventory,
    }
}

/// Reads the ledger alone. `why` says why the driver's part is missing.
fn of_ledger(config: &Config, why: Option<String>) -> Facts {
    let inventory = Inventory::of_ledger(config);
    Facts {
        complaints: why.into_iter().chain(world::unread(&inventory)).collect(),
        inventory,
        ..Facts::default()
    }
}
