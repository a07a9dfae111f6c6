//! One machine in a directory, shared by processes.
//!
//! ```text
//! DIR/state.json    the machine; replaced as a whole, so that readers need no lock, also when faults or a trace begin
//! DIR/lock          held (flock) while the machine changes
//! DIR/session       open in each process with a session
//! DIR/locks/gpuN    held while a call changes GPU N, the simulated time it takes included
//! DIR/unsettled     the machine changed but the driver root may not show it yet
//! DIR/lib, DIR/proc, DIR/dev, DIR/faults.json, DIR/trace.log
//! ```
//!
//! A process killed between a change and its files leaves `unsettled` behind, and the next one that
//! takes the lock settles it.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fs2::FileExt;

use crate::driver_root;
use crate::engine::Machine;
use crate::holders::Files;
use crate::{fault, sys, trace};

/// The name of the file with the machine.
pub const FILE: &str = "state.json";
/// An empty file that each session has open. A real one has the device nodes open.
pub const SESSION: &str = "session";
const UNSETTLED: &str = "unsettled";

pub struct Store {
    dir: PathBuf,
    cache: Mutex<Option<Seen>>,
}

/// What the last look at the machine saw: most calls change nothing.
struct Seen {
    /// While it is open, no file that replaces it has its inode, so that none goes unnoticed, however fast they follow.
    _file: File,
    mark: [u64; 5],
    machine: Arc<Machine>,
    is_watched: bool,
}

/// What tells a file from one that replaces it, and from itself after a write by a careless test.
fn mark(file: &Metadata) -> [u64; 5] {
    let written = [file.mtime() as u64, file.mtime_nsec() as u64];
    [file.dev(), file.ino(), file.len(), written[0], written[1]]
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
    File::create(dir.join(SESSION))?;
    for index in 0..machine.gpus.len() {
        File::create(gpu_lock_path(dir, index as u32))?;
    }
    driver_root::create(dir, machine)?;
    replace(&dir.join(FILE), &serde_json::to_vec(machine)?)
}

/// Changes the machine in a directory at once, as an administrator does.
pub fn change<T>(dir: &Path, change: impl FnOnce(&mut Machine, &Files<'_>) -> T) -> io::Result<T> {
    Store::open(dir)?.change(None, false, |machine, files| Ok(change(machine, files)))
}

/// Lets every process look at the machine again, after new faults or a new trace.
pub fn renew(dir: &Path) -> io::Result<()> {
    let lock = File::open(dir.join("lock"))?;
    FileExt::lock_exclusive(&lock)?;
    replace(&dir.join(FILE), &fs::read(dir.join(FILE))?)
}

/// Replaces a file at once: a reader sees the old or the new one, also after a kill.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    fs::rename(&temporary, path)
}

/// Removes a file, which may be missing.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn gpu_lock_path(dir: &Path, gpu: u32) -> PathBuf {
    dir.join("locks").join(format!("gpu{gpu}"))
}

impl Store {
    /// The machine in a directory; an error if there is none.
    pub fn open(dir: &Path) -> io::Result<Store> {
        let (dir, cache) = (dir.to_path_buf(), Mutex::new(None));
        let store = Store { dir, cache };
        store.load()?;
        Ok(store)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The machine as it is now.
    pub fn load(&self) -> io::Result<Arc<Machine>> {
        self.look(|seen| seen.machine.clone())
    }

    /// Whether there may be faults or a trace.
    pub fn is_watched(&self) -> bool {
        self.look(|seen| seen.is_watched).unwrap_or(true)
    }

    fn look<T>(&self, see: impl FnOnce(&Seen) -> T) -> io::Result<T> {
        let path = self.dir.join(FILE);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = &*cache
            && seen.mark == mark(&path.metadata()?)
        {
            return Ok(see(seen));
        }
        let file = File::open(path)?;
        Ok(see(cache.insert(Seen {
            mark: mark(&file.metadata()?),
            machine: Arc::new(serde_json::from_str(&io::read_to_string(&file)?)?),
            is_watched: self.dir.join(fault::FILE).exists() || trace::is_on(&self.dir),
            _file: file,
        })))
    }

    /// Keeps other changes of a GPU out until the file is dropped.
    pub fn lock_gpu(&self, gpu: u32) -> io::Result<File> {
        let file = File::open(gpu_lock_path(&self.dir, gpu))?;
        FileExt::lock_exclusive(&file)?;
        Ok(file)
    }

    /// Changes the machine unless the change fails. See [`Locked::commit`] for `gpu` and `killed`.
    pub fn change<T, E: From<io::Error>>(
        &self,
        gpu: Option<u32>,
        killed: bool,
        change: impl FnOnce(&mut Machine, &Files<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut locked = self.lock()?;
        let (dir, machine) = (self.dir(), &locked.machine.clone());
        let answer = change(&mut locked.machine, &Files { dir, machine })?;
        locked.commit(gpu, killed)?;
        Ok(answer)
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
        match self.dir.join(UNSETTLED).exists() {
            true => self.lock().map(drop),
            false => Ok(()),
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
