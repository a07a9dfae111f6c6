//! The levels that this machine has for the memory limit of a share.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::limit;
use crate::model::{Gpu, Level};
use crate::mps::{self, Program};
use crate::refusal::NO_LEVEL_HINT;
use std::cell::OnceCell;

/// The least compute capability of a GPU under an MPS server with limits.
const MPS_CAPABILITY: (u32, u32) = (7, 0);

/// The permitted levels, best first, each possible here or with the reason why not.
#[derive(Debug)]
pub(crate) struct Levels {
    all: Vec<(Level, Option<String>)>,
    /// The control program, if `mps` is possible.
    program: Option<Program>,
    /// The failure of a look, which says nothing about the machine. A create that goes on could get a weaker level.
    failed: Option<Error>,
}

/// Returns the permitted levels of shares, best first, each with the reason for which this machine does not have it.
pub fn levels(config: &Config) -> Vec<(Level, Option<String>)> {
    Levels::new(config, None).all
}

/// The reason for which a GPU has no level.
pub(super) enum NoLevel {
    /// None is possible, for these reasons.
    Impossible(String),
    /// The driver does not answer.
    Unknown(String),
}

impl Levels {
    /// Looks at the machine. `no_mps` is the reason for which the container cannot have an MPS daemon.
    pub(super) fn new(config: &Config, no_mps: Option<&str>) -> Levels {
        let mut levels = Levels {
            all: Vec::new(),
            program: None,
            failed: None,
        };
        for level in &config.sharing.enforcement {
            let reason = match level {
                Level::None => None,
                Level::Driver => limit::machine_obstacle(),
                Level::Mps => match program(config, no_mps) {
                    Ok(Ok(program)) => {
                        levels.program = Some(program);
                        None
                    }
                    Ok(Err(reason)) => Some(reason),
                    Err(e) => {
                        let reason = e.reason();
                        levels.failed = Some(e);
                        Some(reason)
                    }
                },
            };
            if let (Level::Mps, Some(reason)) = (level, &reason) {
                tracing::warn!("no share gets the level {level}: {reason}");
            }
            levels.all.push((*level, reason));
        }
        levels
    }

    /// Returns the same for seats: the driver has no limits in a slice.
    pub(super) fn for_seats(mut self) -> Levels {
        for (level, reason) in &mut self.all {
            if *level == Level::Driver {
                *reason = Some("NVML refuses memory limits on MIG devices".to_owned());
            }
        }
        self
    }

    /// Fails if no permitted level is possible here, or if that cannot be found out.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(failed) = &self.failed {
            return Err(Error::new("no level of a share can be chosen")
                .caused_by(Error::new(failed.reason()))
                .hint("try again; the control program does not answer"));
        }
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
        .hint(NO_LEVEL_HINT))
    }

    /// Returns the best level that a GPU supports, and its rank; else the reasons.
    pub(super) fn of_gpu(
        &self,
        driver: &impl Queries,
        gpu: &Gpu,
    ) -> std::result::Result<(usize, Level), NoLevel> {
        let mut reasons = Vec::new();
        for (rank, (level, reason)) in self.all.iter().enumerate() {
            let reason = match (reason, level) {
                (Some(reason), _) => reason.clone(),
                (None, Level::Mps) => match mps_obstacle(driver, gpu)? {
                    Some(reason) => reason,
                    None => return Ok((rank, *level)),
                },
                (None, Level::Driver) => match limit_obstacle(driver, gpu)? {
                    Some(reason) => reason,
                    None => return Ok((rank, *level)),
                },
                (None, Level::None) => return Ok((rank, *level)),
            };
            reasons.push(format!("{level}: {reason}"));
        }
        Err(NoLevel::Impossible(reasons.join("; ")))
    }

    /// Returns the control program.
    pub(super) fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }
}

/// The levels of a machine, looked at once a create.
pub(crate) type LazyLevels = OnceCell<Levels>;

/// Returns the control program, else the reason for which there is none.
fn program(config: &Config, no_mps: Option<&str>) -> Result<std::result::Result<Program, String>> {
    if let Some(reason) = no_mps {
        return Ok(Err(reason.to_owned()));
    }
    if let Some(reason) = mps::socket_obstacle(&config.state_dir) {
        return Ok(Err(reason));
    }
    let configured = config.sharing.mps_control.as_deref();
    let found = mps::find(configured, &config.driver.root)?;
    Ok(found.map_err(|unfit| unfit.reason()))
}

fn limit_obstacle(
    driver: &impl Queries,
    gpu: &Gpu,
) -> std::result::Result<Option<String>, NoLevel> {
    let found = limit::gpu_obstacle(driver, &gpu.uuid);
    found.map_err(|e| NoLevel::Unknown(format!("cannot {e}")))
}

fn mps_obstacle(driver: &impl Queries, gpu: &Gpu) -> std::result::Result<Option<String>, NoLevel> {
    let found = driver.compute_capability(&gpu.uuid);
    let (major, minor) = found.map_err(|e| NoLevel::Unknown(format!("cannot {e}")))?;
    let (least, _) = MPS_CAPABILITY;
    Ok(((major, minor) < MPS_CAPABILITY)
        .then(|| format!("its compute capability is {major}.{minor}, and limits need {least}.0")))
}
