//! The common part of the verbs that show the machine.

use super::output;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::{Result, printable};
use runmig_lease::gpu::nvml;

pub fn look(config: &Config) -> Result<(nvml::Session, Inventory)> {
    let driver = runmig_lease::driver(config);
    let world = Inventory::look(config, &driver)?;
    Ok((driver, world))
}

/// Prints the errors of GPUs and records that migctl could not read. Returns whether it could read all.
pub fn tell_unread(world: &Inventory) -> bool {
    for (_, why) in &world.snapshot.unreadable {
        output::eprint(&printable(why));
    }
    for e in &world.unread {
        output::eprint(&e.line());
    }
    world.snapshot.unreadable.is_empty() && world.unread.is_empty()
}
