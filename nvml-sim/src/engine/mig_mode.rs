//! MIG mode, and what a reset and a boot do to a GPU.

use serde::{Deserialize, Serialize};

use super::Holds;
use super::code::Code;
use super::geometry::Architecture;
use super::machine::{Gpu, Machine, Target};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    Off,
    On,
}

impl Machine {
    /// Asks for a mode. The answer is the activation status, which the call hands out beside its
    /// own success: `None` when the mode is in force.
    pub fn set_mig_mode(
        &mut self,
        gpu: u32,
        mode: Mode,
        holds: &dyn Holds,
    ) -> Result<Option<Code>, Code> {
        self.gpu(gpu)?.of_mig_model()?;
        let it = self.gpu_mut(gpu)?;
        if it.mode == mode {
            it.pending = mode;
            return Ok(None);
        }
        if !it.gpu_instances.is_empty() || holds.held(Target::of_gpu(gpu)) {
            return Ok(Some(Code::IN_USE));
        }
        it.pending = mode;
        if it.model().architecture == Architecture::Ampere {
            return Ok(Some(Code::RESET_REQUIRED));
        }
        it.mode = mode;
        Ok(None)
    }

    /// Resets a GPU: it comes back without instances and with the mode that was asked for.
    pub fn reset_gpu(&mut self, gpu: u32, holds: &dyn Holds) -> Result<(), Code> {
        let it = self.gpu(gpu)?;
        let instances = it.gpu_instances.iter().flat_map(|gi| {
            let cis = gi.compute_instances.iter().map(|ci| Some(ci.id));
            cis.chain([None])
                .map(|ci| Target::new(gpu, Some(gi.id), ci))
        });
        let mut all = instances.chain([Target::of_gpu(gpu)]);
        if all.any(|target| holds.held(target)) {
            return Err(Code::IN_USE);
        }
        self.gpu_mut(gpu)?.power_up();
        self.holders.retain(|h| h.target.gpu != gpu);
        Ok(())
    }

    /// Boots the machine: all instances are gone, and with them, from Hopper on, MIG mode.
    pub fn reboot(&mut self) {
        self.boots += 1;
        self.holders.clear();
        self.memory_limits.clear();
        for gpu in &mut self.gpus {
            gpu.lost = false;
            gpu.power_up();
            if gpu.model().architecture != Architecture::Ampere {
                gpu.mode = Mode::Off;
                gpu.pending = Mode::Off;
            }
        }
    }
}

impl Gpu {
    fn power_up(&mut self) {
        self.gpu_instances.clear();
        self.mode = self.pending;
        self.health = self.health.after_reset();
    }
}
