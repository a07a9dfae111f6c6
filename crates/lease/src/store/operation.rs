//! The operations at work: each create that makes a container.
//!
//! ```text
//! operations/<id>     an operation, empty. Its process holds the file's lock, so an unlocked file is of a
//!                     process that ended
//! ```
//!
//! A lease names its operation. A pid would tell the same only of a process that ends with its operation.

use super::lock::{self, MAX_REPLACED};
use super::{Store, make_folder, random_id};
use crate::error::{Context, Result};
use crate::files::{self, Links};
use crate::model::OperationId;
use crate::{effect, paths};
use nix::sys::inotify::AddWatchFlags;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub(super) const FOLDER: &str = "operations";

/// Returns the events of the folder that tell of killed operations. Any other operation removes its file before it closes
/// it.
pub(crate) fn killed() -> AddWatchFlags {
    AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::from_bits_retain(libc::IN_EXCL_UNLINK)
}

/// An operation at work. No other process collects its leases until this value is dropped or its process
/// ends.
#[derive(Debug)]
pub struct Operation {
    id: OperationId,
    path: PathBuf,
    lock: File,
}

impl Operation {
    /// Returns the id, which leases name.
    pub fn id(&self) -> &OperationId {
        &self.id
    }

    /// Returns a descriptor for a child. The operation is at work until the child has ended, too.
    pub(crate) fn for_child(&self) -> std::io::Result<File> {
        self.lock.try_clone()
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // The lock is still held, so no other process has removed the file as a dead one's.
        let _ = effect::remove_file(&self.path);
    }
}

impl Store {
    /// Returns the folder of the operations.
    pub(crate) fn operations(&self) -> PathBuf {
        self.dir.join(FOLDER)
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// The file of the operation cannot be created or locked.
    pub(crate) fn begin(&self) -> Result<Operation> {
        let dir = self.operations();
        let what = || format!("begin an operation in {}", dir.display());
        make_folder(&dir).context(what)?;
        for _ in 0..MAX_REPLACED {
            let id = OperationId::new(random_id()?);
            let path = dir.join(id.as_str());
            // Another process may look at the file, or remove it, before it is locked. No lease names it yet.
            if let Some(lock) = created(&path).context(what)? {
                return Ok(Operation { id, path, lock });
            }
        }
        Err(lock::replaced(&dir))
    }

    /// Wakes everything that waits for a change of which the ledger does not tell, as a killed operation does.
    pub(crate) fn wake(&self) {
        if let Ok(path) = random_id().map(|id| self.operations().join(id)) {
            drop(effect::create(&path));
            let _ = effect::remove_file(&path);
        }
    }

    /// Returns whether an operation is at work. A doubt counts as work.
    pub(crate) fn is_at_work(&self, id: &OperationId) -> bool {
        let file = self.operations().join(id.as_str());
        files::is_locked(&file, Links::Refuse).unwrap_or(true)
    }

    /// Removes the files of operations whose process ended.
    pub(crate) fn sweep_operations(&self) {
        for path in paths::entries(&self.operations()) {
            let Ok(opened) = files::open(&path, Links::Refuse) else {
                continue;
            };
            // The lock is held until the file is gone, so no process begins with it.
            if lock::try_lock(&opened.file).is_ok_and(|locked| locked) {
                let _ = effect::remove_file(&path);
            }
        }
    }
}

/// Creates and locks a file. Returns none if another process locked or removed it in between.
fn created(path: &Path) -> io::Result<Option<File>> {
    let file = effect::create(path)?;
    let is_ours = lock::try_lock(&file)? && lock::is_still(&file, path)?;
    Ok(is_ours.then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("state"), Duration::from_millis(50)).unwrap();
        (dir, store)
    }

    #[test]
    fn locks_operation_until_it_ends() {
        let (_dir, store) = store();
        let (one, other) = (store.begin().unwrap(), store.begin().unwrap());
        let file = store.operations().join(one.id().as_str());
        let is_locked = || files::is_locked(&file, Links::Refuse).unwrap();
        assert_ne!(one.id(), other.id());
        assert!(is_locked());
        // A reader is not taken for the operation by the next reader.
        let reader = files::open(&file, Links::Refuse).unwrap();
        assert!(reader.is_locked().unwrap() && is_locked());
        drop(one);
        assert!(!file.exists() && !is_locked() && !reader.is_locked().unwrap());
    }

    #[test]
    fn sweep_removes_ended_operations_alone() {
        let (_dir, store) = store();
        let at_work = store.begin().unwrap();
        let killed = store.operations().join("0123456789abcdef");
        std::fs::write(&killed, "").unwrap();
        store.sweep_operations();
        assert!(store.operations().join(at_work.id().as_str()).exists());
        assert!(!killed.exists());
    }

    /// A sweep may meet a file between its creation and its lock.
    #[test]
    fn sweep_spares_beginning_operations() {
        let (_dir, store) = store();
        let begin = || (0..200).map(|_| store.begin()).collect::<Result<Vec<_>>>();
        let begun = std::thread::scope(|scope| {
            let beginners = [(); 2].map(|()| scope.spawn(begin));
            while !beginners.iter().all(|b| b.is_finished()) {
                store.sweep_operations();
            }
            beginners.map(|b| b.join().unwrap().unwrap())
        });
        for operation in begun.iter().flatten() {
            assert!(store.operations().join(operation.id().as_str()).exists());
        }
    }
}
