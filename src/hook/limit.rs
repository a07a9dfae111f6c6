//! The createRuntime hook of a share at `driver`: the limit is there before any process of the image runs.

use super::OciState;
use crate::{bundles, log};
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Context, Error, Result, printable};
use runmig_lease::model::LeaseId;

/// Limits the memory of the container in the state to the share of its lease.
pub(super) fn limit(config: &Config, leases: &[LeaseId], state: &OciState) -> Result<()> {
    let what = || format!("limit the GPU memory of container {}", printable(&state.id));
    let [lease] = leases else {
        return Err(Error::new("--limit needs one --lease ID")).context(what);
    };
    let Some(ledger) = bundles::existing(config, Actor::Hook)? else {
        let dir = config.state_dir.display();
        return Err(Error::new(format!("there is no ledger in {dir}"))).context(what);
    };
    log::start(config);
    let pid = state.pid.as_i64().and_then(|pid| i32::try_from(pid).ok());
    match pid.filter(|pid| *pid > 0) {
        Some(pid) => ledger.limit_memory(lease, &state.id, pid),
        None => Err(Error::new("the container's state has no process")).context(what),
    }
}
