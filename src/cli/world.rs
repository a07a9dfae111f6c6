//! The common part of the verbs that show the machine.

use super::driver::{self, Driver};
use super::list;
use super::output;
use runmig_lease::Inventory;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result, printable};
use runmig_lease::gpu::Queries;
use runmig_lease::model::{Gpu, Snapshot};
use runmig_lease::policy::GpuName;
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

/// Returns how many more instances of each profile of a GPU the driver would make: none for one of which it does not say.
/// Calls `fails` with each error, except where the driver does not support the question.
pub fn free_instances(
    driver: &Driver,
    gpu: &Gpu,
    mut fails: impl FnMut(String),
) -> Vec<Option<u32>> {
    let free = gpu.profiles.iter().map(|profile| {
        let answer = driver.free_instances(&gpu.uuid, profile.id);
        if let Err(e) = &answer
            && !e.is_not_supported()
        {
            fails(Error::from(e.clone()).line());
        }
        answer.ok()
    });
    free.collect()
}

/// Returns the error for a name that no GPU has which answers.
pub fn no_gpu(name: &GpuName, snapshot: &Snapshot) -> Error {
    Error::new(match snapshot.unreadable.first() {
        Some((_, why)) => format!("cannot find GPU {name}, and {why}"),
        None => format!("cannot find GPU {name}: none that answers has this name"),
    })
}

/// Returns the errors of GPUs and of the ledger that migctl could not read, a line each.
pub fn unread(world: &Inventory) -> Vec<String> {
    let lost = world.snapshot.unreadable.iter();
    let lost = lost.map(|(_, why)| printable(why));
    lost.chain(world.unread.iter().map(Error::line)).collect()
}

/// Prints these errors. Returns whether there is none.
pub fn tell_unread(world: &Inventory) -> bool {
    let unread = unread(world);
    unread.iter().for_each(|line| output::eprint(line));
    unread.is_empty()
}
