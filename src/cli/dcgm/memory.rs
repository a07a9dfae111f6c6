//! The note of the last reload, in the state directory. Its lock is the turn of a call.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::files;
use runmig_lease::store::Store;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NAME: &str = "dcgm-reload.json";
const API_VERSION: &str = "runmig.dev/v1";
/// The longest note that is read.
const LONGEST: u64 = 64 * 1024;
/// A call that waits for its turn gives up after the waits of this number of calls.
const MOST_TURNS: u32 = 3;
const GAP: Duration = Duration::from_millis(50);

/// The last reload.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    api_version: String,
    kind: String,
    /// Milliseconds since 1970.
    time: u64,
    /// The instances that the processes have listed since.
    instances: BTreeSet<String>,
    /// The processes that may have missed some of them.
    #[serde(default)]
    unaware: BTreeSet<i32>,
}

/// The turn of this call.
pub struct Memory {
    path: PathBuf,
    file: Flock<File>,
    last: Option<Note>,
}

impl Memory {
    /// Waits for the turn of this call.
    pub fn lock(config: &Config) -> Result<Memory> {
        let path = config.state_dir.join(NAME);
        let what = || format!("open {}", path.display());
        Store::open(&config.state_dir, config.lock_timeout)?;
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path);
        let mut file = opened.context(what)?;
        let end = Instant::now() + MOST_TURNS * config.dcgm.reload_every;
        let file = loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => break locked,
                Err((back, Errno::EWOULDBLOCK)) if Instant::now() < end => file = back,
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(Error::new("another reload has locked it")
                        .hint("end its process if it is stopped"))
                    .context(what);
                }
                Err((_, e)) => return Err(e).context(what),
            }
            std::thread::sleep(GAP);
        };
        let text = files::read(&path, LONGEST).unwrap_or_default();
        // A note of a killed call or of another version tells nothing: the next signal comes at once.
        let note = serde_json::from_slice::<Note>(&text).ok();
        let last = note.filter(|note| note.api_version == API_VERSION);
        Ok(Memory { path, file, last })
    }

    /// Returns whether a process has listed these instances at the last reload.
    pub fn knows(&self, pid: i32, instances: &BTreeSet<String>) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|note| note.instances == *instances && !note.unaware.contains(&pid))
    }

    /// Returns the time until the next signal is due. A clock that was set back makes it due at once.
    pub fn time_left(&self, every: Duration) -> Option<Duration> {
        let last = self.last.as_ref()?.time;
        let since = now().checked_sub(last)?;
        every
            .checked_sub(Duration::from_millis(since))
            .filter(|rest| !rest.is_zero())
    }

    /// Notes a reload.
    pub fn note(&mut self, instances: BTreeSet<String>, unaware: BTreeSet<i32>) -> Result<()> {
        let note = Note {
            api_version: API_VERSION.to_owned(),
            kind: "DcgmReload".to_owned(),
            time: now(),
            instances,
            unaware,
        };
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&serde_json::to_vec(&note)?)
        };
        write(&mut self.file).context(|| format!("write {}", self.path.display()))?;
        self.last = Some(note);
        Ok(())
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
