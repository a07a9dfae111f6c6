use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::{Failure, open};
use crate::engine::Target;
use crate::holders;

#[derive(Args)]
pub struct Hold {
    dir: PathBuf,
    /// The GPU's index
    #[arg(long)]
    gpu: u32,
    /// The GPU instance's id; without one, the GPU as a whole is held
    #[arg(long)]
    gi: Option<u32>,
    /// The compute instance's id
    #[arg(long, requires = "gi")]
    ci: Option<u32>,
    /// GPU memory of the process, its context included: a whole number of Mi or Gi
    #[arg(long, value_name = "SIZE", default_value = "256Mi", value_parser = bytes)]
    memory: u64,
    /// Let go after so many seconds instead of when killed
    #[arg(long)]
    seconds: Option<u64>,
}

fn bytes(text: &str) -> Result<u64, String> {
    let sizes = [("Mi", 20), ("Gi", 30)];
    let parsed = sizes.iter().find_map(|(unit, shift)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(1 << shift)
    });
    parsed.ok_or_else(|| format!("{text:?} is not a size: write 512Mi or 3Gi"))
}

impl Hold {
    pub fn run(self) -> Result<(), Failure> {
        let target = Target::new(self.gpu, self.gi, self.ci);
        let _hold = holders::hold(&open(&self.dir)?, target, self.memory)
            .map_err(|e| format!("hold: {e}"))?;
        let part = |name, id: Option<u32>| id.map_or(String::new(), |id| format!(" {name} {id}"));
        let (gi, ci) = (part("GI", self.gi), part("CI", self.ci));
        println!("holding GPU {}{gi}{ci}", self.gpu);
        std::io::stdout().flush()?;
        match self.seconds {
            Some(seconds) => thread::sleep(Duration::from_secs(seconds)),
            None => loop {
                thread::park();
            },
        }
        Ok(())
    }
}
