//! The bundles of containers, as far as leases need them. The caller knows `config.json` and implements
//! them.

use crate::error::Result;
use crate::model::{BootId, LeaseId};
use crate::store::Store;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Restores the bundles of containers after a release. The caller implements it, since it knows
/// `config.json`.
pub trait Bundles {
    /// Puts the original `config.json` back if the file is still the edit of this lease's create. A missing
    /// bundle needs nothing. Leaves a bundle alone that another create has locked.
    ///
    /// # Errors
    /// The original cannot be read or written. The release goes on and reports it.
    fn restore(&self, store: &Store, bundle: &Path, lease: &LeaseId) -> Result<()>;

    /// Says whether a bundle or its `config.json` was removed. Returns false in doubt.
    fn is_gone(&self, bundle: &Path) -> bool;
}

/// Stands for bundles where there are none to restore: for callers that edit no `config.json` or only look.
pub struct NoBundles;

impl Bundles for NoBundles {
    fn restore(&self, _: &Store, _: &Path, _: &LeaseId) -> Result<()> {
        Ok(())
    }

    fn is_gone(&self, _: &Path) -> bool {
        false
    }
}

/// The create that edited a `config.json`, as runmig writes it beside the original.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// The id of the lease, or of the first of several.
    pub lease: LeaseId,
    /// All leases of the create as JSON, for a hook that finds no ledger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<String>,
    /// The identity of the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
    /// The boot of the create.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
}
