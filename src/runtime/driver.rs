//! The driver's files for a container, by the configuration.

use super::Front;
use crate::spec::{DriverFiles, cdi};
use runmig_lease::config::DriverFiles as Choice;
use runmig_lease::error::Result;
use std::path::Path;

/// Returns the driver's files that runmig adds. nvidia-container-runtime adds them itself.
pub fn files(front: &Front<'_>) -> Result<DriverFiles> {
    let name = front.runtime.path.file_name().unwrap_or_default();
    let is_nvidia = name
        .to_string_lossy()
        .starts_with("nvidia-container-runtime");
    let found = || -> Result<cdi::Found> {
        let found = cdi::read(&cdi::DIRS.map(Path::new))?;
        for why in &found.skipped {
            tracing::warn!("passed over: {}", why.line());
        }
        Ok(found)
    };
    match front.config.driver_files {
        Choice::None | Choice::NvidiaRuntime => Ok(DriverFiles::default()),
        Choice::Auto if is_nvidia => Ok(DriverFiles::default()),
        Choice::Auto => Ok(found()?.files.unwrap_or_default()),
        Choice::Cdi => found()?.required(),
    }
}
