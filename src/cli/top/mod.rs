//! `migctl top`: the machine on one page, drawn again at each change. `page` is pure; `live`, `screen` and `looker` are
//! the edge: terminal, signals, kernel and driver.

mod columns;
mod events;
mod facts;
mod gpus;
mod keys;
mod live;
mod looker;
mod page;
mod screen;
mod table;
mod view;
mod winsize;

use super::filter::Filter;
use super::output;
use columns::Column;
use page::{Size, page};
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use std::io::IsTerminal;
use std::time::{Duration, SystemTime};
use view::View;

/// The longest wait for the driver. After it the page shows the ledger alone.
const DRIVER_LIMIT: Duration = Duration::from_secs(8);

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    filter: Filter,
    /// The time between two looks at the driver while the ledger does not change
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = delay)]
    delay: Duration,
    /// The column that orders the leases
    #[arg(long, value_enum, default_value_t = Column::Gpu)]
    sort: Column,
    /// Order from the last to the first
    #[arg(long)]
    reverse: bool,
    /// Print one page and end
    #[arg(long)]
    once: bool,
}

fn delay(text: &str) -> std::result::Result<Duration, String> {
    let delay = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if delay < Duration::from_millis(100) {
        return Err("give at least 100ms, since each look opens the driver".to_owned());
    }
    Ok(delay)
}

pub fn run(config: &Config, options: &Options) -> Result<i32> {
    let view = View::new(&options.filter, options.sort, options.reverse);
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if options.once || is_dumb || !is_terminal {
        return once(config, &view);
    }
    live::run(config, view, options.delay)
}

/// Prints one page, as long and as wide as it is.
fn once(config: &Config, view: &View) -> Result<i32> {
    let facts = looker::within(config, DRIVER_LIMIT);
    let page = page(&facts, view, Size::UNLIMITED, SystemTime::now());
    page.lines.iter().for_each(|line| output::line(&line.text));
    facts
        .complaints
        .iter()
        .for_each(|line| output::eprint(line));
    // A lease that a kill left half is no failure.
    let failures = facts.complaints.len() > facts.inventory.unfinished;
    Ok(i32::from(failures))
}
