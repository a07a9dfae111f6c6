//! Reads the ledger. Each record is whole at any time, so a reader needs no lock; a decision does.

use super::format::{self, Record};
use super::holder::Key;
use super::instance::Instance;
use super::lease::{Held, Lease};
use super::listing::{Damaged, DamagedName};
use super::listing::{Either, Listing, Records, join, missing};
use super::names::{InstanceName, LeaseName};
use super::{Store, durable};
use crate::error::{Context, Error, Result};
use crate::model::{InstanceId, LeaseId};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Store {
    /// Returns whether a container has a lease. It reads only the names in one directory.
    pub fn has(&self, key: &Key) -> bool {
        let prefix = key.prefix();
        self.names_in(&self.leases())
            .is_ok_and(|names| names.iter().any(|name| name.starts_with(&prefix)))
    }

    /// Returns the whole ledger. Each record is whole at any time, so a reader needs no lock; a decision
    /// does.
    ///
    /// # Errors
    /// A directory cannot be read. An unreadable record is no error.
    pub fn list(&self) -> Result<Listing> {
        let listing = self.listing()?;
        if !listing.may_be_half_written() {
            return Ok(listing);
        }
        // A killed writer may have left it so. Without the lock, the listing says what it saw.
        let _writers_end = self.lock("list").ok();
        self.listing()
    }

    /// Returns the ledger as one look shows it, for callers that have the ledger's lock.
    pub(crate) fn listing(&self) -> Result<Listing> {
        let (leases, instances) = (self.leases(), self.instances());
        let list = || {
            let of_leases = names(&leases)?.into_iter().map(|n| (Kind::Lease, n));
            let of_instances = names(&instances)?.into_iter().map(|n| (Kind::Instance, n));
            Ok(of_leases.chain(of_instances).collect())
        };
        let read = |(kind, name): &(Kind, OsString)| match kind {
            Kind::Lease => {
                let lease = format::read::<Lease>(&leases.join(name))?;
                Ok(lease.map(|l| Either::Lease(Box::new(l))))
            }
            Kind::Instance => {
                let instance = format::read::<Instance>(&instances.join(name))?;
                Ok(instance.map(|i| Either::Instance(Box::new(i))))
            }
        };
        let (mut of_leases, mut of_instances) = (Records::new(), Records::new());
        for ((kind, name), outcome) in read_all(list, read)? {
            match kind {
                Kind::Lease => of_leases.insert(name, outcome),
                Kind::Instance => of_instances.insert(name, outcome),
            };
        }
        Ok(join((&leases, of_leases), (&instances, of_instances)))
    }

    /// Returns the lease with this id, or none if it is not on record.
    ///
    /// # Errors
    /// The directory, the lease or its instance cannot be read.
    pub fn get(&self, id: &LeaseId) -> Result<Option<Held>> {
        let leases = self.leases();
        for name in self.names_in(&leases)? {
            if LeaseName::parse(&name).is_some_and(|n| n.lease == *id) {
                let file = leases.join(name);
                let lease = format::read::<Lease>(&file)
                    .context(|| format!("read the lease {}", file.display()))?;
                return lease.map_or(Ok(None), |lease| self.with_instance(lease));
            }
        }
        Ok(None)
    }

    /// Returns a lease and its instance as they are now, or none if the lease is not on record.
    pub(crate) fn held_now(&self, held: &Held) -> Result<Option<Held>> {
        let Some(lease) = self.now(&held.lease, &self.leases())? else {
            return Ok(None);
        };
        match self.instance_now(&held.instance)? {
            Some(instance) => Ok(Some(Held { lease, instance })),
            None => Err(missing(&lease)),
        }
    }

    /// Returns a lease as it is now, or none if it is not on record.
    pub(crate) fn lease_now(&self, lease: &Lease) -> Result<Option<Lease>> {
        self.now(lease, &self.leases())
    }

    /// Returns an instance as it is now, or none if it is not on record.
    pub(crate) fn instance_now(&self, instance: &Instance) -> Result<Option<Instance>> {
        self.now(instance, &self.instances())
    }

    fn now<R: Record>(&self, record: &R, dir: &Path) -> Result<Option<R>> {
        let file = dir.join(record.file_name());
        format::read(&file).context(|| format!("read {}", file.display()))
    }

    fn with_instance(&self, lease: Lease) -> Result<Option<Held>> {
        let instances = self.instances();
        for name in self.names_in(&instances)? {
            if InstanceName::parse(&name).is_some_and(|n| n.instance == lease.instance) {
                let file = instances.join(name);
                let instance = format::read::<Instance>(&file)
                    .context(|| format!("read the instance {}", file.display()))?;
                return match instance {
                    Some(instance) => Ok(Some(Held { lease, instance })),
                    None => Err(missing(&lease)),
                };
            }
        }
        Err(missing(&lease))
    }

    /// Returns the instance with this name, or none if it is not on record.
    pub(crate) fn instance_named(&self, name: &InstanceName) -> Result<Option<Instance>> {
        let file = self.instances().join(name.name());
        format::read::<Instance>(&file).context(|| format!("read {}", file.display()))
    }

    /// Returns whether a record has this id in its name.
    pub(crate) fn is_on_record(&self, id: &str) -> Result<bool> {
        let mut names = self.names_in(&self.leases())?;
        names.extend(self.names_in(&self.instances())?);
        Ok(names
            .iter()
            .any(|name| name.split('.').take(2).any(|part| part == id)))
    }

    /// Returns the names of the leases on an instance. A caller that acts on the answer has the ledger's
    /// lock.
    pub(crate) fn leases_on(&self, instance: &InstanceId) -> Result<Vec<LeaseName>> {
        let names = self.names_in(&self.leases())?;
        let names = names.iter().filter_map(|n| LeaseName::parse(n));
        Ok(names.filter(|n| n.instance == *instance).collect())
    }

    /// Returns the names of all instances, also of unreadable ones. Opens no record.
    pub fn instance_names(&self) -> Result<Vec<InstanceName>> {
        let names = self.names_in(&self.instances())?;
        Ok(names
            .iter()
            .filter_map(|n| InstanceName::parse(n))
            .collect())
    }

    /// Returns the path of a lease's record.
    pub fn lease_file(&self, lease: &Lease) -> PathBuf {
        self.leases().join(lease.file_name())
    }

    /// Returns the path of an instance's record.
    pub fn instance_file(&self, instance: &Instance) -> PathBuf {
        self.instances().join(instance.file_name())
    }

    /// Returns the path of the lease of a damaged line.
    pub(crate) fn lease_file_of(&self, damaged: &Damaged) -> Option<PathBuf> {
        match &damaged.name {
            DamagedName::Lease(name, _) => Some(self.leases().join(name.name())),
            DamagedName::Instance(_) | DamagedName::Foreign => None,
        }
    }

    /// Returns the path of the instance of a damaged line.
    pub(crate) fn instance_file_of(&self, damaged: &Damaged) -> Option<PathBuf> {
        let name = damaged.instance()?.name();
        Some(self.instances().join(name))
    }

    /// Returns the names of all records, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.names_in(&self.leases()).unwrap_or_default();
        names.extend(self.names_in(&self.instances()).unwrap_or_default());
        names
    }

    fn names_in(&self, dir: &Path) -> Result<Vec<String>> {
        let names = names(dir)?.into_iter();
        Ok(names.map(|n| n.to_string_lossy().into_owned()).collect())
    }
}

/// The folder of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Lease,
    Instance,
}

/// Returns the sorted names in a directory, after two listings. The kernel lists a long folder in pieces. On
/// a tmpfs, a record that is replaced between two pieces may be in neither, or in both. Names are sorted
/// instead of paths, because the order of paths compares their parts: that took half the time of a large
/// collection.
fn names(dir: &Path) -> Result<Vec<OsString>> {
    let mut names = listed(dir)?;
    names.extend(listed(dir)?);
    names.sort();
    names.dedup();
    Ok(names)
}

fn listed(dir: &Path) -> Result<Vec<OsString>> {
    let what = || format!("read {}", dir.display());
    let mut names = Vec::new();
    match std::fs::read_dir(dir) {
        Ok(entries) => {
            for entry in entries {
                let name = entry.context(what)?.file_name();
                if !name.as_bytes().starts_with(durable::TEMPORARY.as_bytes()) {
                    names.push(name);
                }
            }
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e).context(what),
    }
    Ok(names)
}

/// The number of times that runmig reads a ledger whose records go before it reads them.
const ROUNDS: usize = 64;

/// Reads the listed files, each once. After a file that went before it was read, it reads the list again: a
/// lease and its instance are of one moment.
fn read_all<T>(
    list: impl Fn() -> Result<Vec<(Kind, OsString)>>,
    read: impl Fn(&(Kind, OsString)) -> Result<Option<T>>,
) -> Result<BTreeMap<(Kind, OsString), Result<T>>> {
    let mut known = BTreeMap::new();
    let mut gone = OsString::new();
    for _ in 0..ROUNDS {
        let files: BTreeSet<(Kind, OsString)> = list()?.into_iter().collect();
        known.retain(|file, _| files.contains(file));
        let mut all_there = true;
        for file in files {
            if known.contains_key(&file) {
                continue;
            }
            match read(&file).transpose() {
                Some(outcome) => drop(known.insert(file, outcome)),
                None => (all_there, gone) = (false, file.1),
            }
        }
        if all_there {
            return Ok(known);
        }
    }
    Err(Error::new(format!(
        "cannot read the ledger: records went before they were read, {ROUNDS} times ({} was the last)",
        gone.display()
    ))
    .hint("try again when fewer containers come and go"))
}

pub(super) fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn files(names: &[usize]) -> Result<Vec<(Kind, OsString)>> {
        let file = |n: &usize| (Kind::Lease, OsString::from(n.to_string()));
        Ok(names.iter().map(file).collect())
    }

    /// Failure: records come and go faster than runmig can read them
    #[test]
    fn gives_up_on_endless_churn() {
        let rounds = Cell::new(0);
        let churn = || {
            rounds.set(rounds.get() + 1);
            files(&[rounds.get()])
        };
        let e = read_all(churn, |_| Ok(None::<()>)).unwrap_err().line();
        assert_eq!(rounds.get(), ROUNDS);
        assert!(e.contains("64 times (64 was the last)"), "{e}");
    }

    #[test]
    fn reads_each_record_once() {
        let (rounds, reads) = (Cell::new(0), Cell::new(0));
        // Record 1 is replaced by 2 before it is read, and 0 stays.
        let list = || {
            rounds.set(rounds.get() + 1);
            files(&[0, rounds.get().min(2)])
        };
        let read = |(_, name): &(Kind, OsString)| {
            reads.set(reads.get() + 1);
            Ok((name != "1").then_some(()))
        };
        let known: Vec<(Kind, OsString)> = read_all(list, read).unwrap().into_keys().collect();
        assert_eq!(known, files(&[0, 2]).unwrap());
        assert_eq!((rounds.get(), reads.get()), (2, 3));
    }
}
