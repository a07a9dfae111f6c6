//! The locks of the Kubernetes driver, of which two processes run while one takes over from the other.
//!
//! Both locks are on one file. The whole of it says which process publishes. A byte of it is a claim's turn.

use super::Store;
use super::lock::{self, Lock};
use crate::effect;
use crate::error::{Context, Result};
use std::convert::Infallible;
use std::fs::File;
use std::path::PathBuf;

const FILE: &str = "dra.lock";
const WHY: &str = "publishes to Kubernetes";

/// The right to publish and to promise, until it is dropped or its process ends.
#[derive(Debug)]
pub struct DriverLock {
    _lock: Lock,
}

/// The turn of a claim, until it is dropped or its process ends.
#[derive(Debug)]
pub struct ClaimTurn {
    _file: File,
}

impl Store {
    /// Takes the driver's lock without waiting. Returns the holder in words if another process has it.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn try_lock_driver(&self) -> Result<Result<DriverLock, String>> {
        let lock = Lock::try_take(&self.driver_file(), WHY)?;
        Ok(lock.map(|lock| DriverLock { _lock: lock }))
    }

    /// Waits for the driver's lock without a limit, in the order of the callers: a driver waits until the one before it
    /// ends.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn lock_driver(&self) -> Result<DriverLock> {
        let lock = Lock::take_at_last(&self.driver_file(), WHY)?;
        Ok(DriverLock { _lock: lock })
    }

    /// Waits for the turn of a claim, which excludes work on it in other processes. Threads of one process have turns of
    /// their own.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn claim_turn(&self, uid: &str) -> Result<ClaimTurn> {
        let path = self.driver_file();
        let Ok(file) = lock::hold::<Infallible>(&path, |file| {
            effect::lock_byte(&file, lock::byte_of(uid.as_bytes()), true)
                .context(|| format!("lock {}", path.display()))?;
            Ok(Ok(file))
        })?;
        Ok(ClaimTurn { _file: file })
    }

    fn driver_file(&self) -> PathBuf {
        self.dir().join(FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn store(dir: &std::path::Path) -> Store {
        Store::open(&dir.join("state"), Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn successor_waits_for_drivers_lock() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (first, second) = (store(dir.path()), store(dir.path()));
        let held = first.try_lock_driver().unwrap().unwrap();
        let by = second.try_lock_driver().unwrap().unwrap_err();
        let us = format!("process {} (publishes to Kubernetes)", std::process::id());
        assert!(by.starts_with(&us), "{by}");
        let (told, taken) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let lock = second.lock_driver().unwrap();
            told.send(()).unwrap();
            lock
        });
        assert!(taken.try_recv().is_err());
        drop(held);
        taken.recv().unwrap();
        let held = waiter.join().unwrap();
        assert!(first.try_lock_driver().unwrap().is_err());
        drop(held);
        assert!(first.try_lock_driver().unwrap().is_ok());
    }

    #[test]
    fn claim_waits_for_its_turn() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (first, second) = (store(dir.path()), store(dir.path()));
        let _driver = first.try_lock_driver().unwrap().unwrap();
        let turn = first.claim_turn("a").unwrap();
        drop(second.claim_turn("b").unwrap());
        let (told, taken) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let turn = second.claim_turn("a").unwrap();
            told.send(()).unwrap();
            turn
        });
        assert!(taken.try_recv().is_err());
        drop(turn);
        taken.recv().unwrap();
        drop(waiter.join().unwrap());
    }
}
