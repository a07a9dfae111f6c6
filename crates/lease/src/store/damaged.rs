//! Records that cannot be read. Their names still reserve their places.

use super::holder::Claim;
use super::holder::Key;
use super::instance::Origin;
use super::lease::{Lease, LeaseState};
use super::names::{self, InstanceName, LeaseName, Place};
use crate::error::Error;
use crate::model::BootId;
use std::path::PathBuf;

/// A line of the ledger of which a record cannot be read. Only a caller that knows that its container is gone
/// releases it.
#[derive(Debug)]
pub struct Damaged {
    /// The path of the record.
    pub file: PathBuf,
    /// The error of the read.
    pub why: Error,
    /// The content of the names.
    pub name: DamagedName,
    /// The lease, where only the record of its instance cannot be read.
    pub lease: Option<Lease>,
}

/// The content of the names of damaged records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamagedName {
    /// A lease, and its instance if that is on record.
    Lease(LeaseName, Option<InstanceName>),
    /// An instance without a lease.
    Instance(InstanceName),
    /// The name is not one of runmig's.
    Foreign,
}

impl Damaged {
    /// Returns the id of the lease, or of an instance without a lease.
    pub fn id(&self) -> Option<&str> {
        match &self.name {
            DamagedName::Lease(lease, _) => Some(lease.lease.as_str()),
            DamagedName::Instance(instance) => Some(instance.instance.as_str()),
            DamagedName::Foreign => None,
        }
    }

    /// Returns the lease if a kill left it without its instance: between the two records of a create, or
    /// between their removals. It is readable and holds nothing, so it is no damage.
    pub fn unfinished(&self) -> Option<&Lease> {
        let lease = self.lease.as_ref()?;
        let has_instance = self.instance().is_some();
        (!has_instance && lease.state != LeaseState::Ready).then_some(lease)
    }

    /// Returns the name of the instance; none where it is not on record.
    pub fn instance(&self) -> Option<&InstanceName> {
        match &self.name {
            DamagedName::Lease(_, instance) => instance.as_ref(),
            DamagedName::Instance(instance) => Some(instance),
            DamagedName::Foreign => None,
        }
    }

    /// Returns the place that the names reserve.
    pub fn place(&self) -> Option<&Place> {
        self.instance().map(|i| &i.place)
    }

    /// Returns the memory that the lease books of its GPU, in MiB, if it is on a share.
    pub fn booked_mib(&self) -> Option<u64> {
        match &self.name {
            DamagedName::Lease(lease, _) => lease.booked_mib,
            DamagedName::Instance(_) | DamagedName::Foreign => None,
        }
    }

    /// Returns the boot of the records.
    pub fn boot_id(&self) -> Option<&BootId> {
        match &self.name {
            DamagedName::Lease(lease, _) => Some(&lease.boot_id),
            DamagedName::Instance(_) | DamagedName::Foreign => self.place().map(|p| &p.boot_id),
        }
    }

    /// Returns the maker of the instance.
    pub fn origin(&self) -> Origin {
        self.instance().map_or(Origin::Ours, |name| name.origin)
    }

    /// Returns whether the container with this key has the lease.
    pub fn is_of(&self, key: &Key) -> bool {
        match &self.name {
            DamagedName::Lease(lease, _) => names::is_of(&lease.key, key),
            DamagedName::Instance(_) | DamagedName::Foreign => false,
        }
    }

    /// Returns whether the lease is of a claim.
    pub fn is_claim(&self) -> bool {
        matches!(&self.name, DamagedName::Lease(lease, _) if lease.is_claim)
    }

    /// Returns whether a claim's device has the lease.
    pub(crate) fn is_of_claim(&self, claim: &Claim) -> bool {
        match &self.name {
            DamagedName::Lease(lease, _) => {
                lease.is_claim && claim.prefix() == format!("{}.", lease.key)
            }
            DamagedName::Instance(_) | DamagedName::Foreign => false,
        }
    }

    /// Returns whether no container has the instance.
    pub(crate) fn is_nobodys(&self) -> bool {
        matches!(self.name, DamagedName::Instance(_))
    }
}
