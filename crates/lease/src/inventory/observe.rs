//! Shares as they are now, beside what is on record: their memory, and the gaps in their limits.

use super::around::AroundMps;
use super::booking::uses;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::Queries;
use crate::limit;
use crate::model::{ChangedLimit, Level};
use crate::mps::{self, Home, Patience, Talks};
use crate::process;
use crate::store::{Held, LeaseState};
use std::time::Duration;

/// The time for daemons that do not answer. A view goes on without them.
const PATIENCE: Patience = Patience {
    each: Duration::from_secs(2),
    all: Duration::from_secs(5),
};

/// The observations of one share.
#[derive(Debug, Default, Clone)]
pub struct ObservedShare {
    /// The GPU memory that the processes of its container use, in bytes. None where it cannot be found out.
    pub used_bytes: Option<u64>,
    /// The processes of its container that compute on its GPU and are no MPS clients. None at other levels, and where
    /// it cannot be found out.
    pub around: Option<Vec<u32>>,
    /// The limit of its MPS server, or of its cgroup in the driver, if it is not that of the share.
    pub limit_changed: Option<ChangedLimit>,
    /// The attempts that failed, as `read the memory limit`, each with its cause.
    pub unknown: Vec<(&'static str, String)>,
}

/// Observes shares. It asks the driver, and the daemon of each share at `mps` that lives.
pub fn observe(config: &Config, driver: &impl Queries, held: &[&Held]) -> Vec<ObservedShare> {
    let mut around = AroundMps::new();
    let mut talks: Option<Result<Talks>> = None;
    let used = uses(driver, held.iter().copied());
    let observed = held.iter().zip(used).map(|(held, used)| {
        let mut seen = ObservedShare {
            used_bytes: used.used_bytes,
            ..ObservedShare::default()
        };
        if held.lease.state != LeaseState::Ready {
            return seen;
        }
        let changed = match held.lease.level() {
            Some(Level::Mps) => {
                match around.of(driver, held) {
                    Ok(pids) => seen.around = pids,
                    Err(e) => seen
                        .unknown
                        .push(("list the processes without MPS", e.to_string())),
                }
                limit_of(config, held, &mut talks)
            }
            Some(Level::Driver) => limit::changed(driver, held).map_err(|e| e.reason()),
            Some(Level::None) | None => Ok(None),
        };
        match changed {
            Ok(changed) => seen.limit_changed = changed,
            Err(why) => seen.unknown.push(("read the memory limit", why)),
        }
        seen
    });
    observed.collect()
}

/// Returns the limit of a share's server if it is not that of the share. A daemon that has ended has no server.
fn limit_of(
    config: &Config,
    held: &Held,
    talks: &mut Option<Result<Talks>>,
) -> std::result::Result<Option<ChangedLimit>, String> {
    let (Some(share), Some(daemon)) = (held.lease.share(), held.lease.daemon()) else {
        return Ok(None);
    };
    let is_alive = daemon.process.is_some_and(|p| process::is_alive(&p));
    if !is_alive || !daemon.ready {
        return Ok(None);
    }
    let begin = || {
        let configured = config.sharing.mps_control.as_deref();
        let program = mps::place(configured, &config.driver.root)?;
        Ok(Talks::new(&program, PATIENCE))
    };
    let home = Home::of(&config.state_dir, &held.lease.id);
    let talks: &Result<Talks> = talks.get_or_insert_with(begin);
    let talks = talks.as_ref().map_err(Error::reason)?;
    let changed = talks.changed(&home, share.memory_mib);
    changed.map_err(|e| e.reason())
}
