//! The driver's own files as edits of config.json, from the node's CDI specification.

use super::edit::DriverFiles;
use super::hooks::hook;
use oci_spec::runtime::{Mount, MountBuilder};
use runmig_lease::cdi::{self, Edits};
use runmig_lease::error::{Context, Result};

/// Returns the edits in the form of config.json.
pub fn driver_files(edits: Edits) -> Result<DriverFiles> {
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
