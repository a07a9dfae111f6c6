use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Failure, open};
use crate::trace;

#[derive(Args)]
pub struct Trace {
    dir: PathBuf,
    what: What,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Log every call from now on, in an empty log
    On,
    /// Log no more
    Off,
    /// Print the log: process, function, CPU time in ns, return code or how the process was killed
    Show,
}

impl Trace {
    pub fn run(self) -> Result<(), Failure> {
        open(&self.dir)?;
        match self.what {
            What::On => trace::on(&self.dir)?,
            What::Off => trace::off(&self.dir)?,
            What::Show => print!("{}", trace::read(&self.dir)?),
        }
        Ok(())
    }
}
