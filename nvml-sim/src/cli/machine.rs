//! Events of a machine as a whole or of a GPU, from outside of NVML.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, change, open};
use crate::engine::{Code, Health, Mode};

#[derive(Args)]
pub struct Dir {
    dir: PathBuf,
}

impl Dir {
    pub fn reboot(self) -> Result<(), Failure> {
        change(&self.dir, None, |machine, _| {
            machine.reboot();
            Ok(())
        })
    }
}

#[derive(Args)]
pub struct OfGpu {
    dir: PathBuf,
    /// The GPU's index
    #[arg(long)]
    gpu: u32,
}

impl OfGpu {
    pub fn reset(self) -> Result<(), Failure> {
        change(&self.dir, Some(self.gpu), |machine, holds| {
            let reset = machine.reset_gpu(self.gpu, holds);
            reset.map_err(|code| format!("reset GPU {}: {code}", self.gpu).into())
        })
    }

    pub fn set_lost(self, lost: bool) -> Result<(), Failure> {
        change(&self.dir, Some(self.gpu), |machine, _| {
            let gpu = machine.gpus.get_mut(self.gpu as usize);
            gpu.ok_or_else(|| format!("no GPU {}", self.gpu))?.lost = lost;
            Ok(())
        })
    }
}

#[derive(Args)]
pub struct OfHealth {
    #[command(flatten)]
    of: OfGpu,
    #[command(flatten)]
    health: Health,
}

impl OfHealth {
    pub fn set(self) -> Result<(), Failure> {
        let OfGpu { dir, gpu: index } = self.of;
        change(&dir, Some(index), |machine, _| {
            let gpu = machine.gpus.get_mut(index as usize);
            gpu.ok_or_else(|| format!("no GPU {index}"))?.health = self.health;
            Ok(())
        })
    }
}

#[derive(Args)]
pub struct Mig {
    dir: PathBuf,
    /// The GPU's index, or `all`
    #[arg(long)]
    gpu: String,
    mode: Mode,
}

impl Mig {
    pub fn run(self) -> Result<(), Failure> {
        let gpus: Vec<u32> = match self.gpu.as_str() {
            "all" => (0..open(&self.dir)?.load()?.gpus.len() as u32).collect(),
            one => vec![one.parse().map_err(|_| format!("no GPU {one:?}"))?],
        };
        let only = gpus.first().copied().filter(|_| gpus.len() == 1);
        change(&self.dir, only, |machine, holds| {
            for gpu in gpus {
                let fail = |code| format!("MIG mode of GPU {gpu}: {code}");
                match machine.set_mig_mode(gpu, self.mode, holds).map_err(fail)? {
                    Some(Code::RESET_REQUIRED) => {
                        machine.reset_gpu(gpu, holds).map_err(fail)?;
                    }
                    Some(busy) => return Err(fail(busy).into()),
                    None => {}
                }
            }
            Ok(())
        })
    }
}
