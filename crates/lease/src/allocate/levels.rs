//! The levels that this machine has for the memory limit of a share.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::model::{Gpu, Level};
use crate::mps::{self, Program};
use std::cell::OnceCell;

/// The least compute capability of a GPU under an MPS server with limits.
const MPS_CAPABILITY: (u32, u32) = (7, 0);

/// The permitted levels, best first, each possible here or with the reason why not.
#[derive(Debug)]
pub(crate) struct Levels {
    all: Vec<(Level, Option<String>)>,
    /// The control program, if `mps` is possible.
    program: Option<Program>,
}

impl Levels {
    /// Looks at the machine. `no_mps` is the reason for which the container cannot have an MPS daemon.
    pub(super) fn new(config: &Config, no_mps: Option<&str>) -> Levels {
        let mut levels = Levels {
            all: Vec::new(),
            program: None,
        };
        for level in &config.sharing.enforcement {
            let reason = match level {
                Level::None => None,
                Level::Driver => {
                    Some("this version of runmig sets no limits in the driver".to_owned())
                }
                Level::Mps => match program(config, no_mps) {
                    Ok(program) => {
                        levels.program = Some(program);
                        None
                    }
                    Err(reason) => Some(reason),
                },
            };
            levels.all.push((*level, reason));
        }
        levels
    }

    /// Fails if no permitted level is possible here.
    pub(super) fn check(&self) -> Result<()> {
        if self.all.iter().any(|(_, reason)| reason.is_none()) {
            return Ok(());
        }
        let reasons = self.all.iter();
        let reasons =
            reasons.filter_map(|(level, why)| Some(format!("{level}: {}", why.as_ref()?)));
        Err(Error::new(format!(
            "no permitted level can hold the memory limit of a share ({})",
            reasons.collect::<Vec<_>>().join("; ")
        ))
        .hint("the administrator may add none to sharing.enforcement: then runmig books the memory, and nothing limits it"))
    }

    /// Returns the best level that a GPU supports, and its rank; else the reasons.
    pub(super) fn of_gpu(
        &self,
        driver: &impl Queries,
        gpu: &Gpu,
    ) -> std::result::Result<(usize, Level), String> {
        let mut reasons = Vec::new();
        for (rank, (level, reason)) in self.all.iter().enumerate() {
            let reason = match (reason, level) {
                (Some(reason), _) => reason.clone(),
                (None, Level::Mps) => match mps_obstacle(driver, gpu) {
                    Some(reason) => reason,
                    None => return Ok((rank, *level)),
                },
                (None, _) => return Ok((rank, *level)),
            };
            reasons.push(format!("{level}: {reason}"));
        }
        Err(reasons.join("; "))
    }

    /// Returns the control program.
    pub(super) fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }
}

/// The levels of a machine, looked at once a create.
pub(crate) type LazyLevels = OnceCell<Levels>;

fn program(config: &Config, no_mps: Option<&str>) -> std::result::Result<Program, String> {
    if let Some(reason) = no_mps {
        return Err(reason.to_owned());
    }
    if let Some(reason) = mps::socket_obstacle(&config.state_dir) {
        return Err(reason);
    }
    let configured = config.sharing.mps_control.as_deref();
    mps::find(configured, &config.driver.root).map_err(|e| e.reason())
}

fn mps_obstacle(driver: &impl Queries, gpu: &Gpu) -> Option<String> {
    match driver.compute_capability(&gpu.uuid) {
        Ok(capability) if capability >= MPS_CAPABILITY => None,
        Ok((major, minor)) => {
            let (least, _) = MPS_CAPABILITY;
            Some(format!(
                "its compute capability is {major}.{minor}, and limits need {least}.0"
            ))
        }
        Err(e) => Some(format!("cannot {e}")),
    }
}
