//! The section `sharing` of the configuration.

use crate::error::{Error, Result};
use crate::model::Level;
use serde::Deserialize;
use std::path::PathBuf;

/// The number of shares that one GPU takes, at most. An MPS server of CUDA 12 takes as many clients.
const MOST: u32 = 48;
/// The memory that an MPS server needs on its GPU, in MiB: 72 were measured on an H100.
const OVERHEAD_MIB: u64 = 128;
/// The most that an administrator may set for it, in MiB.
const MOST_OVERHEAD_MIB: u64 = 4096;

/// The rules for shares of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sharing {
    /// The permitted levels, best first.
    pub enforcement: Vec<Level>,
    /// The most shares of one GPU.
    pub shares_per_gpu: u32,
    /// The absolute path of NVIDIA's MPS control program. Without one runmig looks in the usual places.
    pub mps_control: Option<PathBuf>,
    /// The memory that each MPS daemon books beside its share, in MiB.
    pub mps_overhead: u64,
}

impl Default for Sharing {
    fn default() -> Self {
        Sharing {
            enforcement: vec![Level::Driver, Level::Mps],
            shares_per_gpu: MOST,
            mps_control: None,
            mps_overhead: OVERHEAD_MIB,
        }
    }
}

impl Sharing {
    /// Checks the rules beyond their syntax.
    ///
    /// # Errors
    /// A list without a level or with one twice, and a number of shares that no GPU takes.
    pub fn check(&self) -> Result<()> {
        let all = &self.enforcement;
        if all.is_empty() {
            return Err(Error::new("sharing.enforcement is empty")
                .hint("forbid shares with policy.kinds = [\"slice\", \"gpu\"]"));
        }
        if let Some(twice) = (1..all.len()).find(|n| all[..*n].contains(&all[*n])) {
            return Err(Error::new(format!(
                "sharing.enforcement names {} twice",
                all[twice]
            )));
        }
        if self.mps_overhead > MOST_OVERHEAD_MIB {
            return Err(Error::new(format!(
                "sharing.mps_overhead = {} is not a number of MiB from 0 to {MOST_OVERHEAD_MIB}",
                self.mps_overhead
            )));
        }
        match (1..=MOST).contains(&self.shares_per_gpu) {
            true => Ok(()),
            false => Err(Error::new(format!(
                "sharing.shares_per_gpu = {} is not a number from 1 to {MOST}",
                self.shares_per_gpu
            ))),
        }
    }
}
