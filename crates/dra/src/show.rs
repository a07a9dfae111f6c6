//! `runmig-dra show`: the ResourceSlices that this node would publish, without a cluster.

use crate::options::Options;
use crate::resource_slices::Published;
use crate::room::Room;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result};
use std::sync::Arc;

/// Returns the ResourceSlices of this node as YAML documents. The log names the GPUs that are left out.
///
/// # Errors
/// The GPU driver or the ledger cannot be read.
pub(crate) fn show(options: &Options, config: Config) -> Result<String> {
    let earlier = Some(Published::default());
    let mut room = Room::new(Arc::new(config), &options.node, earlier, None);
    let slices = room.look()?;
    serde_saphyr::to_string_multiple(&slices.unwrap_or_default())
        .context(|| "write the ResourceSlices as YAML")
}
