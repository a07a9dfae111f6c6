//! Joins the records of the ledger: each lease with its instance, and those that cannot be read.

use super::holder::{Claim, Key};
use super::instance::{Instance, InstanceState, Origin};
use super::lease::{Entry, Held, Lease, LeaseState};
use super::names::{self, InstanceName, LeaseName, Place};
use crate::error::{Error, Result};
use crate::model::{BootId, InstanceId};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The content of the ledger.
#[derive(Debug, Default)]
pub struct Listing {
    /// The leases with their instances, in order of creation, then the instances without a lease.
    pub entries: Vec<Entry>,
    /// The records that cannot be read.
    pub damaged: Vec<Damaged>,
}

impl Listing {
    /// Returns the leases with their instances.
    pub fn held(&self) -> impl Iterator<Item = &Held> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Held(held) => Some(held),
            Entry::Unleased(_) => None,
        })
    }

    /// Returns whether a writer may be between its two records.
    pub(super) fn may_be_half_written(&self) -> bool {
        let is_new = |entry: &Entry| match entry {
            Entry::Held(_) => false,
            Entry::Unleased(instance) => {
                matches!(
                    instance.state,
                    InstanceState::Creating | InstanceState::Ready
                )
            }
        };
        self.entries.iter().any(is_new)
            || self
                .damaged
                .iter()
                .any(|d| matches!(d.name, DamagedName::Lease(_, None)) && d.lease.is_some())
    }
}

/// A record of either kind.
pub(super) enum Either {
    Lease(Box<Lease>),
    Instance(Box<Instance>),
}

/// Records by the names of their files.
pub(super) type Records = BTreeMap<OsString, Result<Either>>;

/// Joins the leases with their instances. Each kind comes with its folder.
pub(super) fn join(
    (leases, of_leases): (&Path, Records),
    (folder, of_instances): (&Path, Records),
) -> Listing {
    let mut listing = Listing::default();
    let mut instances: BTreeMap<InstanceId, (PathBuf, InstanceName, Result<Instance>)> =
        BTreeMap::new();
    for (name, outcome) in of_instances {
        let file = folder.join(&name);
        let outcome = outcome.and_then(|either| match either {
            Either::Instance(instance) => Ok(*instance),
            Either::Lease(_) => Err(Error::new("it is no Instance")),
        });
        match (InstanceName::parse(&name.to_string_lossy()), outcome) {
            (Some(name), outcome) => {
                drop(instances.insert(name.instance.clone(), (file, name, outcome)))
            }
            (None, outcome) => listing.damaged.push(Damaged {
                why: outcome
                    .err()
                    .unwrap_or_else(|| Error::new("its name is unknown")),
                file,
                name: DamagedName::Foreign,
                lease: None,
            }),
        }
    }
    let (mut held, mut leased) = (Vec::new(), BTreeSet::new());
    for (name, outcome) in of_leases {
        let file = leases.join(&name);
        let outcome = outcome.and_then(|either| match either {
            Either::Lease(lease) => Ok(*lease),
            Either::Instance(_) => Err(Error::new("it is no Lease")),
        });
        let damaged_name = match LeaseName::parse(&name.to_string_lossy()) {
            Some(lease) => {
                let instance = instances
                    .get(&lease.instance)
                    .map(|(_, name, _)| name.clone());
                leased.insert(lease.instance.clone());
                DamagedName::Lease(lease, instance)
            }
            None => DamagedName::Foreign,
        };
        let damaged = |file, why, lease| Damaged {
            file,
            why,
            name: damaged_name,
            lease,
        };
        match outcome {
            Err(why) => listing.damaged.push(damaged(file, why, None)),
            Ok(lease) => match instances.get(&lease.instance) {
                Some((_, _, Ok(instance))) => held.push(Held {
                    lease,
                    instance: instance.clone(),
                }),
                Some((of_instance, _, Err(why))) => {
                    let why = Error::new(why.line());
                    listing
                        .damaged
                        .push(damaged(of_instance.clone(), why, Some(lease)));
                }
                None => listing
                    .damaged
                    .push(damaged(file, missing(&lease), Some(lease))),
            },
        }
    }
    held.sort_by(|a, b| {
        let (a, b) = (&a.lease, &b.lease);
        (&a.created, &a.id).cmp(&(&b.created, &b.id))
    });
    let mut unleased = Vec::new();
    for (id, (file, name, outcome)) in instances {
        match outcome {
            _ if leased.contains(&id) => {}
            Ok(instance) => unleased.push(instance),
            Err(why) => listing.damaged.push(Damaged {
                file,
                why,
                name: DamagedName::Instance(name),
                lease: None,
            }),
        }
    }
    unleased.sort_by(|a, b| (&a.created, &a.id).cmp(&(&b.created, &b.id)));
    let held = held.into_iter().map(Entry::Held);
    listing.entries = held
        .chain(unleased.into_iter().map(Entry::Unleased))
        .collect();
    listing
}

/// Returns the error of a lease without an instance.
pub(super) fn missing(lease: &Lease) -> Error {
    Error::new(format!("its instance {} is not on record", lease.instance))
}

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

    /// Returns the name of the lease, if it is on a share.
    pub(crate) fn share(&self) -> Option<&LeaseName> {
        match &self.name {
            DamagedName::Lease(lease, _) => Some(lease).filter(|l| l.booked_mib.is_some()),
            DamagedName::Instance(_) | DamagedName::Foreign => None,
        }
    }

    /// Returns the memory that the lease books of its GPU, in MiB, if it is on a share.
    pub fn booked_mib(&self) -> Option<u64> {
        self.share()?.booked_mib
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
