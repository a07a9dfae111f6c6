//! The createRuntime hook of a share at `driver`: the limit is there before any process of the image runs.

use super::OciState;
use crate::{bundles, log};
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::model::LeaseId;

/// Limits the memory of the container in the state to the share of its lease.
pub(super) fn limit(config: &Config, leases: &[LeaseId], state: &OciState) -> Result<()> {
    let [lease] = leases else {
        return Err(Error::new("--limit needs one --lease ID"));
    };
    let Some(ledger) = bundles::existing(config)? else {
        let dir = config.state_dir.display();
        return Err(Error::new(format!("there is no ledger in {dir}")));
    };
    log::start(config);
    match state.pid.filter(|pid| *pid > 0) {
        Some(pid) => ledger.limit_memory(lease, &state.id, pid),
        None => Err(Error::new(format!(
            "the state of container {} has no process",
            state.id
        ))),
    }
}
