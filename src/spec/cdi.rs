//! The driver's own files as edits of config.json, from the node's CDI specification.

use super::edit::DriverFiles;
use super::hooks::hook;
use oci_spec::runtime::{Mount, MountBuilder};
pub use runmig_lease::cdi::DIRS;
use runmig_lease::cdi::{self, Edits};
use runmig_lease::error::{Context, Result};
use std::path::Path;

/// The findings in the CDI directories.
pub type Found = cdi::Found<DriverFiles>;

/// Reads the driver's files; see `runmig_lease::cdi::read`.
pub fn read(dirs: &[&Path]) -> Result<Found> {
    let found = cdi::read(dirs)?;
    Ok(Found {
        files: found.files.map(driver_files).transpose()?,
        skipped: found.skipped,
    })
}

/// Parses one specification alone. Returns none for another vendor's.
pub(crate) fn parse(text: &str, json: bool) -> Result<Option<DriverFiles>> {
    cdi::parse(text, json)?.map(driver_files).transpose()
}

fn driver_files(edits: Edits) -> Result<DriverFiles> {
    let hook = |given: cdi::Hook| {
        let made = hook(&given.path, given.args, given.env, given.timeout)?;
        Ok((given.hook_name, made))
    };
    Ok(DriverFiles {
        env: edits.env,
        mounts: edits.mounts.into_iter().map(mount).collect::<Result<_>>()?,
        hooks: edits.hooks.into_iter().map(hook).collect::<Result<_>>()?,
        additional_gids: edits.additional_gids,
    })
}

fn mount(given: cdi::Mount) -> Result<Mount> {
    let mut mount = MountBuilder::default()
        .destination(&given.container_path)
        .source(&given.host_path)
        .build()
        .context(|| format!("make mount {}", given.container_path.display()))?;
    mount.set_options(given.options);
    mount.set_typ(given.typ);
    Ok(mount)
}
