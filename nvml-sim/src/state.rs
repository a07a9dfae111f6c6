//! One machine in a directory, shared by processes.
//!
//! ```text
//! DIR/state.json    the machine; replaced as a whole, so that readers need no lock
//! DIR/lock          held (flock) while the machine changes
//! DIR/locks/gpuN    held while a call changes GPU N, the simulated time it takes included
//! DIR/unsettled     the machine changed but the driver root may not show it yet
//! DIR/lib, DIR/proc, DIR/dev, DIR/faults.json, DIR/trace.log
//! ```
//!
//! A process killed between a change and its files leaves `unsettled` behind, and the next one that
//! takes the lock settles it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fs2::FileExt;

use crate::driver_root;
use crate::engine::Machine;
use crate::holders::Files;
use crate::sys;

/// The name of the file with the machine.
pub const FILE: &str = "state.json";
const UNSETTLED: &str = "unsettled";

pub struct Store {
    dir: PathBuf,
    /// The bytes of the file at its last read, and their meaning: most calls change nothing.
    cache: Mutex<Option<(Vec<u8>, Arc<Machine>)>>,
}

/// The machine, locked against changes by other processes.
pub struct Locked<'a> {
    store: &'a Store,
    _lock: File,
    pub machine: Machine,
}

/// Makes a whole machine in a directory that is empty or not there.
pub fn create(dir: &Path, machine: &Machine) -> io::Result<()> {
    fs::create_dir_all(dir.join("locks"))?;
    File::create(dir.join("lock"))?;
    for index in 0..machine.gpus.len() {
        File::create(gpu_lock_path(dir, index as u32))?;
    }
    driver_root::create(dir, machine)?;
    replace(&dir.join(FILE), &serde_json::to_vec(machine)?)
}

/// Changes the machine in a directory at once, as an administrator does.
pub fn change<T>(dir: &Path, change: impl FnOnce(&mut Machine, &Files<'_>) -> T) -> io::Result<T> {
    let store = Store::open(dir)?;
    let mut locked = store.lock()?;
    let before = locked.machine.clone();
    let files = Files {
        dir,
        machine: &before,
    };
    let answer = change(&mut locked.machine, &files);
    locked.commit(None, false)?;
    Ok(answer)
}

/// Replaces a file at once: a reader sees the old or the new one, also after a kill.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    fs::rename(&temporary, path)
}

fn gpu_lock_path(dir: &Path, gpu: u32) -> PathBuf {
    dir.join("locks").join(format!("gpu{gpu}"))
}

impl Store {
    /// The machine in a directory; an error if there is none.
    pub fn open(dir: &Path) -> io::Result<Store> {
        let store = Store {
            dir: dir.to_path_buf(),
            cache: Mutex::new(None),
        };
        store.load()?;
        Ok(store)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The machine as it is now.
    pub fn load(&self) -> io::Result<Arc<Machine>> {
        let bytes = fs::read(self.dir.join(FILE))?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cache {
            Some((known, machine)) if *known == bytes => Ok(machine.clone()),
            _ => {
                let machine = Arc::new(serde_json::from_slice::<Machine>(&bytes)?);
                *cache = Some((bytes, machine.clone()));
                Ok(machine)
            }
        }
    }

    /// Keeps other changes of a GPU out until the file is dropped.
    pub fn lock_gpu(&self, gpu: u32) -> io::Result<File> {
        let file = File::open(gpu_lock_path(&self.dir, gpu))?;
        FileExt::lock_exclusive(&file)?;
        Ok(file)
    }

    pub fn lock(&self) -> io::Result<Locked<'_>> {
        let file = File::open(self.dir.join("lock"))?;
        FileExt::lock_exclusive(&file)?;
        let machine = (*self.load()?).clone();
        if self.dir.join(UNSETTLED).exists() {
            driver_root::settle(&self.dir, &machine, None)?;
            fs::remove_file(self.dir.join(UNSETTLED))?;
        }
        Ok(Locked {
            store: self,
            _lock: file,
            machine,
        })
    }

    /// Completes the driver root after a process that was killed before it could.
    pub fn settle(&self) -> io::Result<()> {
        if self.dir.join(UNSETTLED).exists() {
            self.lock().map(drop)
        } else {
            Ok(())
        }
    }
}

impl Locked<'_> {
    /// Makes the change and shows it. `gpu` says whose files can differ, `None` all of them;
    /// `killed` ends the process in between.
    pub fn commit(self, gpu: Option<u32>, killed: bool) -> io::Result<()> {
        let dir = &self.store.dir;
        File::create(dir.join(UNSETTLED))?;
        replace(&dir.join(FILE), &serde_json::to_vec(&self.machine)?)?;
        if killed {
            sys::kill_self();
        }
        driver_root::settle(dir, &self.machine, gpu)?;
        fs::remove_file(dir.join(UNSETTLED))
    }
}
