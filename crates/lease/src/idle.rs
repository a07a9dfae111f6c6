//! When an idle slice may no longer be handed out.

use crate::config::Config;
use crate::model::Snapshot;
use crate::store::{Instance, Resource};
use std::time::{Duration, SystemTime};

/// Returns for how long a slice has been idle; none where the clock was set back.
pub(crate) fn age(idle: &Instance) -> Option<Duration> {
    let since = idle.idle_since()?.time()?;
    SystemTime::now().duration_since(since).ok()
}

/// Returns why an idle slice may be destroyed; else why it stays.
pub(crate) fn is_over(config: &Config, idle: &Instance) -> Result<String, String> {
    let limit = config.keep_idle;
    if limit.is_zero() {
        return Ok("idle slices are not kept".to_owned());
    }
    // A clock that was set back would keep it for long.
    let Some(left) = age(idle).and_then(|age| limit.checked_sub(age)) else {
        let time = humantime::format_duration(limit);
        return Ok(format!("it was idle for {time}"));
    };
    Err(format!("it is idle, for {} s more", left.as_secs()))
}

/// Returns whether an idle slice can be handed out: it is there, unchanged, and its time is not over.
pub(crate) fn is_usable(config: &Config, snapshot: &Snapshot, idle: &Instance) -> bool {
    is_there(snapshot, idle) && is_over(config, idle).is_err()
}

/// Returns whether the driver shows the very instance.
pub(crate) fn is_there(snapshot: &Snapshot, instance: &Instance) -> bool {
    let gpu = snapshot.gpu(instance.resource.gpu_uuid());
    gpu.is_some_and(|gpu| match &instance.resource {
        Resource::Mig(slice) => gpu.instances.iter().any(|i| {
            let its = (slice.gpu_instance, slice.profile_id, slice.placement);
            (Some(i.id), i.profile_id, i.placement) == its
        }),
        Resource::Gpu(_) => true,
    })
}
