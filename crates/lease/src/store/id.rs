//! The ids of leases, instances and operations.

use crate::error::{Context, Result};
use crate::files;
use std::path::Path;

/// Returns a random id: 32 hexadecimal digits.
pub(crate) fn random_id() -> Result<String> {
    const FILE: &str = "/proc/sys/kernel/random/uuid";
    let uuid = files::read_text(Path::new(FILE), 64).context(|| format!("read {FILE}"))?;
    Ok(uuid.trim().replace('-', ""))
}
