//! The levels that this machine has for the memory limit of a share.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::{DriverError, Queries};
use crate::limit;
use crate::model::{Gpu, Level};
use crate::mps::{self, Program};
use crate::placement::{GpuObstacle, Over, ShareLevel, ShareTerms};
use crate::refusal::NO_LEVEL_HINT;
use crate::request::{ShareSize, Wanted};
use std::cell::OnceCell;

/// The least compute capability of a GPU under an MPS server with limits.
const MPS_CAPABILITY: (u32, u32) = (7, 0);

/// The rules for a share: the permitted levels, best first, each with what makes it impossible here, if anything does, and
/// how many shares one GPU or slice takes.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    all: Vec<(Level, Option<String>)>,
    /// The control program, if `mps` is possible.
    program: Option<Program>,
    /// The failure of a look, which says nothing about the machine. A create that goes on could get a weaker level.
    failed: Option<Error>,
    /// The memory that a daemon itself needs, in MiB.
    mps_overhead_mib: u64,
    /// The number of shares that one GPU or slice takes.
    most: u32,
}

/// Returns the permitted levels of shares, best first, each with why this machine lacks it, if it does.
pub fn levels(config: &Config) -> Vec<(Level, Option<String>)> {
    Levels::new(config, None).all
}

impl Levels {
    /// Looks at the machine for a request. `no_mps`: why the container cannot have an MPS daemon.
    pub(super) fn of_wanted(config: &Config, no_mps: Option<&str>, wanted: &Wanted) -> Levels {
        let mut levels = Levels::new(config, no_mps);
        if let Wanted::Seat(_) = wanted {
            // The driver has no limits in a slice.
            let of_driver = levels.all.iter_mut().filter(|l| l.0 == Level::Driver);
            for (_, reason) in of_driver {
                *reason = Some("NVML refuses memory limits on MIG devices".to_owned());
            }
        }
        levels
    }

    fn new(config: &Config, no_mps: Option<&str>) -> Levels {
        let mut levels = Levels {
            mps_overhead_mib: config.sharing.mps_overhead,
            most: config.sharing.shares_per_gpu,
            ..Levels::default()
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

    /// Returns the level of a share on a GPU, the best that it supports; else why it has none.
    pub(super) fn of_gpu(
        &self,
        driver: &impl Queries,
        gpu: &Gpu,
    ) -> std::result::Result<ShareLevel, GpuObstacle> {
        let mut reasons = Vec::new();
        for (rank, (level, reason)) in self.all.iter().enumerate() {
            let reason = match (reason, level) {
                (Some(reason), _) => Some(reason.clone()),
                (None, Level::Mps) => mps_obstacle(driver, gpu)?,
                (None, Level::Driver) => limit::gpu_obstacle(driver, &gpu.uuid).map_err(unknown)?,
                (None, Level::None) => None,
            };
            match reason {
                Some(reason) => reasons.push(format!("{level}: {reason}")),
                None => {
                    return Ok(ShareLevel {
                        level: *level,
                        rank,
                        overhead_mib: match level {
                            Level::Mps => self.mps_overhead_mib,
                            Level::Driver | Level::None => 0,
                        },
                    });
                }
            }
        }
        Err(GpuObstacle::NoLevel(reasons.join("; ")))
    }

    /// Returns the terms of a choice.
    pub(super) fn of_sizes<'s>(
        &self,
        sizes: &'s [ShareSize],
        limit: &'s dyn Fn(u64) -> Option<Over>,
    ) -> ShareTerms<'s> {
        ShareTerms {
            sizes,
            most: self.most,
            limit,
        }
    }

    /// Returns the control program.
    pub(super) fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }
}

/// The levels of a machine, looked at once a create.
pub(crate) type LazyLevels = OnceCell<Levels>;

/// Returns the control program, else why there is none.
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

fn mps_obstacle(
    driver: &impl Queries,
    gpu: &Gpu,
) -> std::result::Result<Option<String>, GpuObstacle> {
    let (major, minor) = driver.compute_capability(&gpu.uuid).map_err(unknown)?;
    let (least, _) = MPS_CAPABILITY;
    Ok(((major, minor) < MPS_CAPABILITY)
        .then(|| format!("its compute capability is {major}.{minor}, and limits need {least}.0")))
}

fn unknown(e: DriverError) -> GpuObstacle {
    GpuObstacle::unknown(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_permitted_levels_with_what_they_lack() {
        let config = "sharing.enforcement = [\"mps\", \"none\"]\n[driver]\nroot = \"/nowhere\"\n";
        let all = levels(&Config::parse(config).unwrap());
        let [(Level::Mps, Some(why)), (Level::None, None)] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert!(why.contains("/nowhere"), "{why}");
    }
}
