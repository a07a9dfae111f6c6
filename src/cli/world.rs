//! The common part of the verbs that show the machine.

use super::driver::{self, Driver};
use super::list;
use super::output;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::{Result, printable};

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
    for e in &world.unread {
        output::eprint(&e.line());
    }
    world.snapshot.unreadable.is_empty() && world.unread.is_empty()
}
