//! `migctl metrics`: one exposition of the machine, without a resident process. `exposition` is pure; `facts` reads the
//! machine, and the writers know the text formats.

mod counters;
#[cfg(test)]
mod docs;
mod exposition;
mod facts;
mod family;
mod gpus;
mod http;
mod label;
mod openmetrics;
mod prometheus;
mod slices;
mod table;
mod text;
mod textfile;

use super::output;
use clap::{Args, ValueEnum, ValueHint};
use exposition::{About, exposition};
use facts::Facts;
use family::Families;
use runmig_lease::config::Config;
use runmig_lease::counters::Counts;
use runmig_lease::error::{Context, Result};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use textfile::Textfile;

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
    /// Replace a file of node_exporter, whose name ends in .prom, in the older format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "format")]
    textfile: Option<PathBuf>,
    /// Answer one HTTP request from standard input on standard output
    #[arg(long, conflicts_with_all = ["format", "no_driver", "textfile"])]
    http: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// OpenMetrics 1.0
    Openmetrics,
    /// Prometheus' text format 0.0.4
    Prometheus,
}

impl TextFormat {
    fn content_type(self) -> &'static str {
        match self {
            TextFormat::Openmetrics => openmetrics::CONTENT_TYPE,
            TextFormat::Prometheus => prometheus::CONTENT_TYPE,
        }
    }

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
        let counts = counts(config);
        let about = About {
            version: env!("CARGO_PKG_VERSION"),
            policy: &config.policy,
            counts: counts.as_ref().ok().and_then(Option::as_ref),
            seconds: begun.elapsed().as_secs_f64(),
        };
        Exposed {
            families: exposition(&facts, &about),
            complaints: { facts.complaints().into_iter() }
                .chain(counts.err().map(|e| e.line()))
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
    if options.http {
        return http::run(config);
    }
    let limit = (!options.no_driver).then_some(DRIVER_LIMIT);
    if let Some(path) = &options.textfile {
        return write_file(config, path, limit);
    }
    let exposed = Exposed::now(config, limit);
    print(&options.format.write(&exposed.families))?;
    for line in &exposed.complaints {
        output::eprint(line);
    }
    Ok(i32::from(!exposed.complaints.is_empty()))
}

/// Writes an exposition for node_exporter. The file tells of a driver that fails, so that is no failure here.
fn write_file(config: &Config, path: &Path, limit: Option<Duration>) -> Result<i32> {
    let file = Textfile::at(path)?;
    let exposed = Exposed::now(config, limit);
    file.replace(&TextFormat::Prometheus.write(&exposed.families))?;
    for line in &exposed.complaints {
        output::eprint(line);
    }
    Ok(0)
}

/// Prints an exposition. A reader that has gone misses nothing.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context(|| "write to standard output"),
    }
}
