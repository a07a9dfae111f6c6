//! The health of a GPU, as field values and the state of its fabric tell it.

use serde::{Deserialize, Serialize};

use super::code::Code;
use super::geometry::Architecture;
use super::machine::{Driver, Gpu};

/// The signs that a GPU is sick. By default it is well, and has no fabric.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize, clap::Args)]
#[serde(default)]
pub struct Health {
    /// Rows of its memory wait for a reset to be remapped (Ampere and later)
    #[arg(long)]
    pub remap_pending: bool,
    /// A row could not be remapped (Ampere and later)
    #[arg(long)]
    pub remap_failed: bool,
    /// Pages of its memory wait for a reset to be retired (before Ampere)
    #[arg(long)]
    pub retirement_pending: bool,
    /// The double-bit errors since the driver was loaded
    #[arg(long, default_value_t)]
    pub uncorrectable_errors: u64,
    /// The number of the recovery action: 1 reset, 2 reboot, 3 drain peer-to-peer, 4 drain and reset
    #[arg(long, default_value_t)]
    pub recovery_action: u64,
    /// The state of its fabric: 0 for none, 1 not started, 2 in progress, 3 completed (Hopper and later)
    #[arg(long, default_value_t)]
    pub fabric: u8,
    /// The error of a completed registration with the fabric
    #[arg(long, default_value_t)]
    pub fabric_status: u32,
}

impl Health {
    /// Returns what is left after a reset: a row that could not be remapped, and the fabric.
    pub fn after_reset(&self) -> Health {
        Health {
            remap_failed: self.remap_failed,
            fabric: self.fabric,
            fabric_status: self.fabric_status,
            ..Health::default()
        }
    }
}

impl Gpu {
    /// Returns the value of `NVML_FI_*`. A GeForce has no ECC memory.
    pub fn field(&self, id: u32, driver: &Driver) -> Result<u64, Code> {
        let (model, health) = (self.model(), &self.health);
        let has_ecc = !model.is_geforce();
        let has_rows = has_ecc && model.architecture != Architecture::Turing;
        let (is_known, value) = match id {
            4 => (has_ecc, health.uncorrectable_errors),
            31 => (has_ecc && !has_rows, health.retirement_pending.into()),
            144 => (has_rows, health.remap_pending.into()),
            145 => (has_rows, health.remap_failed.into()),
            230 => (driver.branch() >= 570, health.recovery_action),
            _ => (false, 0),
        };
        is_known.then_some(value).ok_or(Code::NOT_SUPPORTED)
    }

    /// Returns the state of the fabric and the status of its registration. GPUs before Hopper do not know it.
    pub fn fabric(&self) -> Result<(u8, u32), Code> {
        match self.model().architecture {
            Architecture::Hopper | Architecture::Blackwell => {
                Ok((self.health.fabric, self.health.fabric_status))
            }
            Architecture::Turing | Architecture::Ampere | Architecture::Ada => {
                Err(Code::NOT_SUPPORTED)
            }
        }
    }
}
