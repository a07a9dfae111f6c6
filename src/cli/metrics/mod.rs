//! `migctl metrics`: one exposition of the machine, without a resident process. `exposition` is pure; `facts` reads the
//! machine, and the writers know the text formats.

mod counters;
#[cfg(test)]
mod docs;
mod exposition;
mod facts;
mod family;
mod gpus;
mod label;
mod openmetrics;
mod prometheus;
mod slices;
mod table;
mod text;

use super::output;
use clap::{Args, ValueEnum};
use counters::Counters;
use exposition::{About, exposition};
use facts::Facts;
use family::Families;
use runmig_lease::config::Config;
use runmig_lease::counters::Counts;
use runmig_lease::error::{Context, Result};
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

/// The longest wait for the driver. Prometheus waits for 10 s unless it is told another time.
const DRIVER_LIMIT: Duration = Duration::from_secs(8);

#[derive(Args)]
pub struct Options {
    /// The text format
    #[arg(long, value_enum, default_value_t = TextFormat::Openmetrics)]
    format: TextFormat,
    /// Read the ledger alone, and open no library of the driver
    #[arg(long)]
    no_driver: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// OpenMetrics 1.0
    Openmetrics,
    /// Prometheus' text format 0.0.4
    Prometheus,
}

impl TextFormat {
    fn write(self, families: &Families) -> String {
        match self {
            TextFormat::Openmetrics => openmetrics::write(families),
            TextFormat::Prometheus => prometheus::write(families),
        }
    }
}

/// One exposition, and the lines about everything that it lacks.
struct Exposed {
    families: Families,
    complaints: Vec<String>,
}

impl Exposed {
    /// Makes an exposition. Without a limit it asks no driver.
    fn now(config: &Config, driver_limit: Option<Duration>) -> Exposed {
        let begun = Instant::now();
        let facts = match driver_limit {
            Some(limit) => Facts::within(config, limit),
            None => Facts::of_ledger(config),
        };
        let counters = counts(config);
        let counted = counters.as_ref().ok().and_then(Option::as_ref);
        let counted = counted.map(Counters::of);
        let about = About {
            version: env!("CARGO_PKG_VERSION"),
            policy: &config.policy,
            counters: counted.as_ref(),
            seconds: begun.elapsed().as_secs_f64(),
        };
        Exposed {
            families: exposition(&facts, &about),
            complaints: { facts.complaints().into_iter() }
                .chain(counters.err().map(|e| e.line()))
                .collect(),
        }
    }
}

/// Reads the counters of this boot.
fn counts(config: &Config) -> Result<Option<Counts>> {
    let boot = runmig_lease::process::boot_id(&config.driver.root)?;
    Counts::read(&config.state_dir, &boot)
}

pub fn run(config: &Config, options: &Options) -> Result<i32> {
    let limit = (!options.no_driver).then_some(DRIVER_LIMIT);
    let exposed = Exposed::now(config, limit);
    print(&options.format.write(&exposed.families))?;
    for line in &exposed.complaints {
        output::eprint(line);
    }
    Ok(i32::from(!exposed.complaints.is_empty()))
}

/// Prints an exposition. A reader that has gone misses nothing.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context(|| "write to standard output"),
    }
}
