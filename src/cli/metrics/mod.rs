//! `migctl metrics`: one exposition of the machine, without a resident process. `facts` reads the machine, `exposition`
//! makes series of it, and `text` is the one format.

mod exposition;
mod facts;
mod http;
mod table;
mod text;
mod textfile;

use super::{driver, output};
use clap::{Args, ValueHint};
use exposition::exposition;
use facts::Facts;
use runmig_lease::config::Config;
use runmig_lease::error::Result;
use std::path::PathBuf;
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

pub fn run(config: &Config, options: &Options) -> Result<i32> {
    if options.http {
        return http::run(config);
    }
    let file = options.textfile.as_deref().map(Textfile::at).transpose()?;
    let facts = Facts::now(config, (!options.no_driver).then(driver::limit));
    let text = exposition(&facts, &config.policy).text();
    match &file {
        Some(file) => file.replace(&text)?,
        None => output::text(&text),
    }
    let complaints = facts.complaints();
    complaints.iter().for_each(|line| output::eprint(line));
    // A file tells of a driver that fails, so that is no failure.
    Ok(i32::from(file.is_none() && !complaints.is_empty()))
}
