//! The bundles of containers, as far as leases need them. The caller knows `config.json` and implements
//! them.

use crate::error::Result;
use crate::store::Store;
use std::path::Path;

pub trait Bundles {
    /// Puts the original `config.json` back, if the file is still the one that this lease's create wrote. A
    /// bundle that is gone needs nothing, and neither does one that another create has locked.
    fn restore(&self, store: &Store, bundle: &Path, lease: &str) -> Result<()>;

    /// Returns whether somebody removed a bundle, or its `config.json`. An answer that leaves doubt is no.
    fn is_gone(&self, bundle: &Path) -> bool;
}

/// For callers that release nothing.
pub(crate) struct NoBundles;

impl Bundles for NoBundles {
    fn restore(&self, _: &Store, _: &Path, _: &str) -> Result<()> {
        Ok(())
    }

    fn is_gone(&self, _: &Path) -> bool {
        false
    }
}

/// The create that edited a `config.json`, as it is written beside the original.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// The first lease, where a container has several.
    pub lease: String,
    /// All leases of the create as the ledger has them, for a hook that finds no ledger.
    pub records: Vec<String>,
    /// Which ledger that was.
    pub ledger: Option<String>,
}

impl From<&str> for Author {
    fn from(lease: &str) -> Author {
        Author {
            lease: lease.to_owned(),
            ..Author::default()
        }
    }
}
