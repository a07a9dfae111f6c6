//! The common part of the verbs that show the machine.

use super::driver::{self, Driver};
use super::list;
use super::output;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use std::io::ErrorKind;

/// Refuses a user who may not read the ledger: a view without it would call runmig's own slices foreign.
pub fn check_reader(config: &Config) -> Result<()> {
    match std::fs::read_dir(&config.state_dir) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            let what = format!("cannot read the ledger in {}", config.state_dir.display());
            Err(Error::new(what).caused_by(e).hint("run it with sudo"))
        }
        _ => Ok(()),
    }
}

/// Looks at the machine. Without an answer of the driver, a table shows what the ledger has.
pub fn look(config: &Config, is_table: bool) -> Result<(Driver, Inventory)> {
    let driver = driver::ask(config);
    let world = Inventory::look(config, &driver);
    let world = world.inspect_err(|_| {
        if is_table {
            list::without_driver(config);
        }
    })?;
    Ok((driver, world))
}

/// Prints the errors of GPUs and records that migctl could not read. Returns whether it could read all.
pub fn tell_unread(world: &Inventory) -> bool {
    for (_, why) in &world.snapshot.unreadable {
        output::eprint(&printable(why));
    }
    if let Some(e) = &world.unread {
        output::eprint(&e.line());
    }
    world.snapshot.unreadable.is_empty() && world.unread.is_none()
}
