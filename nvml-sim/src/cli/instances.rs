//! An administrator's hand, for tests that need foreign instances.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, change};
use crate::engine::{Placement, mig_uuid};

#[derive(Args)]
pub struct Create {
    dir: PathBuf,
    /// The GPU's index
    #[arg(long)]
    gpu: u32,
    /// A profile's name or id
    #[arg(long)]
    profile: String,
    /// The first memory slice [default: where the driver puts it]
    #[arg(long)]
    start: Option<u32>,
    /// Make no compute instance in it
    #[arg(long)]
    no_ci: bool,
}

impl Create {
    pub fn run(self) -> Result<(), Failure> {
        let line = change(&self.dir, Some(self.gpu), |machine, holds| {
            let fail = |code| format!("create {} on GPU {}: {code}", self.profile, self.gpu);
            let model = machine.gpu(self.gpu).map_err(fail)?.model();
            let wanted = &self.profile;
            let mut profiles = model.profiles.iter();
            let profile = profiles.find(|p| p.name == *wanted || p.id.to_string() == *wanted);
            let profile = profile.ok_or_else(|| {
                let known: Vec<_> = model.profiles.iter().map(|p| p.name.as_str()).collect();
                format!("no profile {wanted:?}; there are {}", known.join(", "))
            })?;
            let size = profile.memory_slices;
            let at = self.start.map(|start| Placement { start, size });
            let gi = machine.create_gpu_instance(self.gpu, profile.id, at, holds);
            let gi = gi.map_err(fail)?;
            let Placement { start, size } = gi.placement;
            let mut line = format!("GI {} at {start}:{size}", gi.id);
            if !self.no_ci {
                let ci = machine.create_compute_instance(self.gpu, gi.id, profile.full_ci, None);
                let ci = ci.map_err(fail)?;
                let uuid = mig_uuid(&machine.gpu(self.gpu).map_err(fail)?.uuid, gi.id, ci.id);
                line += &format!(" CI {} {uuid}", ci.id);
            }
            Ok(line)
        })?;
        println!("{line}");
        Ok(())
    }
}

#[derive(Args)]
pub struct Destroy {
    dir: PathBuf,
    /// The GPU's index
    #[arg(long)]
    gpu: u32,
    /// The GPU instance's id
    #[arg(long)]
    gi: u32,
    /// Destroy this compute instance only
    #[arg(long)]
    ci: Option<u32>,
}

impl Destroy {
    pub fn run(self) -> Result<(), Failure> {
        change(&self.dir, Some(self.gpu), |machine, holds| {
            let gone = match self.ci {
                Some(ci) => machine.destroy_compute_instance(self.gpu, self.gi, ci, holds),
                None => machine.destroy_whole(self.gpu, self.gi, holds),
            };
            let (gi, gpu) = (self.gi, self.gpu);
            gone.map_err(|code| format!("destroy GI {gi} on GPU {gpu}: {code}").into())
        })
    }
}
