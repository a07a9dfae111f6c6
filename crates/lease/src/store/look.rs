//! Reads the ledger. Each record is whole at any time, so a reader needs no lock; a decision does.

use super::record::{self, Key, Lease};
use super::record_name::{Ownership, RecordName};
use super::{Store, durable};
use crate::error::{Context, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A record that cannot be read. Its name still reserves its place. Only a caller that knows that its
/// container is gone releases it.
#[derive(Debug)]
pub struct Damaged {
    /// The path of the record.
    pub file: PathBuf,
    /// The error of the read.
    pub why: Error,
    /// The name of the record; none where the name is not one of runmig's.
    pub name: Option<RecordName>,
}

/// The other records of one place.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// The readable ones.
    pub leases: Vec<Lease>,
    /// The names of the others.
    pub unreadable: Vec<RecordName>,
}

impl Neighbours {
    /// Returns whether another lease holds this one's instance too. The instance then outlives this lease.
    pub(crate) fn have_instance_of(&self, lease: &Lease) -> bool {
        let mut unreadable = self.unreadable.iter();
        self.leases.iter().any(|l| l.has_instance_of(lease))
            || unreadable.any(|c| c.ownership == Ownership::Shared)
    }
}

impl Store {
    /// Returns whether a container has a lease. It reads only the names in one directory.
    pub fn has(&self, key: &Key) -> bool {
        let prefix = key.prefix();
        self.files()
            .is_ok_and(|files| files.iter().any(|f| name(f).starts_with(&prefix)))
    }

    /// Returns all leases in order of creation, and the records that cannot be read. Each record is whole
    /// at any time, so a reader needs no lock; a decision does.
    pub fn list(&self) -> Result<(Vec<Lease>, Vec<Damaged>)> {
        let (mut leases, mut damaged) = (Vec::new(), Vec::new());
        for (file, outcome) in read_all(|| self.files(), read)? {
            match outcome {
                Ok(lease) => leases.push(lease),
                Err(why) => damaged.push(Damaged {
                    name: RecordName::parse(&name(&file)),
                    file,
                    why,
                }),
            }
        }
        leases.sort_by(|a: &Lease, b: &Lease| (&a.created, &a.id).cmp(&(&b.created, &b.id)));
        Ok((leases, damaged))
    }

    /// Returns the names of all records, also of unreadable ones. Opens no record.
    pub(crate) fn record_names(&self) -> Result<Vec<RecordName>> {
        let files = self.files()?;
        Ok(files
            .iter()
            .filter_map(|f| RecordName::parse(&name(f)))
            .collect())
    }

    /// Returns the lease with this id, or none if it is not on record.
    ///
    /// # Errors
    /// The directory or the record cannot be read.
    pub fn get(&self, id: &str) -> Result<Option<Lease>> {
        for file in self.files()? {
            if RecordName::parse(&name(&file)).is_some_and(|n| n.lease == id) {
                return read(&file).context(|| format!("read the lease {}", file.display()));
            }
        }
        Ok(None)
    }

    /// Returns the other records at the place of this one, on the same boot. It reads only these. A caller
    /// that acts on the answer has the ledger's lock.
    pub fn neighbours(&self, of: &RecordName) -> Result<Neighbours> {
        let mut neighbours = Neighbours::default();
        for file in self.files()? {
            let Some(name) = RecordName::parse(&name(&file)) else {
                continue;
            };
            if name.lease == of.lease || !name.is_at_place_of(of) {
                continue;
            }
            match read(&file) {
                Ok(lease) => neighbours.leases.extend(lease),
                Err(_) => neighbours.unreadable.push(name),
            }
        }
        Ok(neighbours)
    }

    /// Returns the path of a lease's record.
    pub fn file(&self, lease: &Lease) -> PathBuf {
        self.leases().join(RecordName::of(lease).name())
    }

    /// Returns whether a record still exists and still cannot be read.
    pub fn is_damaged(&self, damaged: &Damaged) -> bool {
        read(&damaged.file).is_err()
    }

    /// Returns the names of the records.
    pub fn names(&self) -> Vec<String> {
        let files = self.files().unwrap_or_default();
        files.iter().map(|f| name(f)).collect()
    }

    /// Returns the sorted files of the ledger, after two listings. The kernel lists a long folder in
    /// pieces. On a tmpfs, a record that is replaced between two pieces may be in neither, or in both.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = self.listed()?;
        files.extend(self.listed()?);
        files.sort();
        files.dedup();
        Ok(files)
    }

    fn listed(&self) -> Result<Vec<PathBuf>> {
        let dir = self.leases();
        let what = || format!("read {}", dir.display());
        let mut files = Vec::new();
        match std::fs::read_dir(&dir) {
            Ok(entries) => {
                for entry in entries {
                    let path = entry.context(what)?.path();
                    if !name(&path).starts_with(durable::TEMPORARY) {
                        files.push(path);
                    }
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e).context(what),
        }
        Ok(files)
    }
}

/// The number of times that runmig reads a ledger whose records go before it reads them.
const ROUNDS: usize = 64;

/// Reads the listed files, each once. A file that goes before it is read may have been replaced by an
/// unlisted one (`Ledger::replace`). Then it reads the list again.
fn read_all<T>(
    list: impl Fn() -> Result<Vec<PathBuf>>,
    read: impl Fn(&Path) -> Result<Option<T>>,
) -> Result<BTreeMap<PathBuf, Result<T>>> {
    let mut known = BTreeMap::new();
    let mut gone = PathBuf::new();
    for _ in 0..ROUNDS {
        let files: BTreeSet<PathBuf> = list()?.into_iter().collect();
        known.retain(|file, _| files.contains(file));
        let mut all_there = true;
        for file in files {
            if known.contains_key(&file) {
                continue;
            }
            match read(&file).transpose() {
                Some(outcome) => drop(known.insert(file, outcome)),
                None => (all_there, gone) = (false, file),
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

/// Reads a record. A record under a name that is not its own does not count, because one lease would be
/// two.
fn read(file: &Path) -> Result<Option<Lease>> {
    if RecordName::parse(&name(file)).is_some_and(|n| n.ownership == Ownership::Unknown) {
        return Err(Error::new("it is a lease of a newer runmig")
            .hint("give it back with the runmig that wrote it"));
    }
    let lease = record::read(file)?;
    match &lease {
        Some(lease) if RecordName::of(lease).name() != name(file) => {
            Err(Error::new("its name is not that of the lease in it"))
        }
        _ => Ok(lease),
    }
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

    fn files(names: &[usize]) -> Result<Vec<PathBuf>> {
        Ok(names.iter().map(|n| PathBuf::from(n.to_string())).collect())
    }

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
        let read = |file: &Path| {
            reads.set(reads.get() + 1);
            Ok((file != Path::new("1")).then_some(()))
        };
        let known: Vec<PathBuf> = read_all(list, read).unwrap().into_keys().collect();
        assert_eq!(known, files(&[0, 2]).unwrap());
        assert_eq!((rounds.get(), reads.get()), (2, 3));
    }
}
