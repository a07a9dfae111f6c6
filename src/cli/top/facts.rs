//! The facts of a page: one look at the ledger, and one short session with the driver.

use super::events;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, printable};
use runmig_lease::{GpuState, Inventory, LeaseUse};

/// The machine at one moment.
#[derive(Default)]
pub struct Facts {
    pub inventory: Inventory,
    /// The use of each GPU, in the order of the snapshot.
    pub gpus: Vec<GpuState>,
    /// The use of each lease, in the order of the inventory. Empty where nobody asked the driver.
    pub uses: Vec<LeaseUse>,
    /// The last events, a line each.
    pub events: Vec<String>,
    /// Everything that could not be read, a line each.
    pub complaints: Vec<String>,
}

impl Facts {
    /// Asks the driver and reads the ledger. The session with the driver ends with this call, since an open one may
    /// keep an instance in use.
    pub fn look(config: &Config) -> Facts {
        let driver = runmig_lease::driver(config);
        let inventory = match Inventory::look(config, &driver) {
            Ok(inventory) => inventory,
            Err(e) => return Facts::of_ledger(config, Some(e.line())),
        };
        let snapshot = &inventory.snapshot;
        let lost = { snapshot.unreadable.iter() }.map(|(_, why)| printable(why));
        Facts {
            gpus: { snapshot.gpus.iter() }
                .map(|gpu| inventory.use_of(&driver, gpu))
                .collect(),
            uses: inventory.uses(&driver),
            events: events::last(config),
            complaints: lost.chain(unread(&inventory)).collect(),
            inventory,
        }
    }

    /// Reads the ledger alone. `why`: the reason why the driver's part is missing.
    pub fn of_ledger(config: &Config, why: Option<String>) -> Facts {
        let inventory = Inventory::of_ledger(config);
        Facts {
            events: events::last(config),
            complaints: why.into_iter().chain(unread(&inventory)).collect(),
            inventory,
            ..Facts::default()
        }
    }
}

/// Returns the records that cannot be read.
fn unread(inventory: &Inventory) -> impl Iterator<Item = String> {
    let lines: Vec<String> = inventory.unread.iter().map(Error::line).collect();
    lines.into_iter()
}
