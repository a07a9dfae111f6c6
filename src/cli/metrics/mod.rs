//! `migctl metrics`: one exposition of the machine, without a resident process. `facts` reads the machine, `exposition`
//! makes series of it, and `text` is the one format.

mod counters;
mod exposition;
mod facts;
mod gpus;
mod http;
mod slices;
mod table;
mod text;
mod textfile;

use super::driver;
use super::output;
use clap::{Args, ValueHint};
use exposition::exposition;
use facts::Facts;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use std::path::PathBuf;
use std::time::Duration;
use textfile::Textfile;

#[derive(Args)]
pub struct Options {
    /// Read the ledger alone, and open no library of the driver
    #[arg(long)]
    no_driver: bool,
    /// Replace a file of node_exporter, whose name ends in .prom
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    textfile: Option<PathBuf>,
    /// Answer one HTTP request from standard input on standard output
    #[arg(long, conflicts_with_all = ["no_driver", "textfile"])]
    pub(super) http: bool,
}

/// One exposition, and the lines about everything that it lacks.
struct Exposed {
    text: String,
    complaints: Vec<String>,
}

impl Exposed {
    /// Makes an exposition. Without a limit it asks no driver.
    fn now(config: &Config, driver_limit: Option<Duration>) -> Exposed {
        let facts = Facts::now(config, driver_limit);
        Exposed {
            text: exposition(&facts, &config.policy).text(),
            complaints: facts.complaints(),
        }
    }
}

pub fn run(config: &Config, options: &Options) -> Result<i32> {
    if options.http {
        return http::run(config);
    }
    let file = options.textfile.as_deref().map(Textfile::at).transpose()?;
    let exposed = Exposed::now(config, (!options.no_driver).then(driver::limit));
    match &file {
        Some(file) => file.replace(&exposed.text)?,
        None => output::text(&exposed.text),
    }
    for line in &exposed.complaints {
        output::eprint(line);
    }
    // A file tells of a driver that fails, so that is no failure.
    Ok(i32::from(file.is_none() && !exposed.complaints.is_empty()))
}
