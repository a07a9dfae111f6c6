//! The note of the last reload, in the state directory.

use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result};
use runmig_lease::store::{ReloadTurn, Store};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const API_VERSION: &str = "runmig.dev/v1";
/// A call that waits for its turn gives up after the waits of this number of calls.
const MOST_TURNS: u32 = 3;

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

/// The turn of this call, with the note of the call before it.
pub struct Memory {
    turn: ReloadTurn,
    last: Option<Note>,
}

impl Memory {
    /// Waits for the turn of this call.
    pub fn lock(config: &Config) -> Result<Memory> {
        let store = Store::open(&config.state_dir, config.lock_timeout)?;
        let turns = MOST_TURNS * config.dcgm.reload_every;
        let turn = store.reload_turn(turns.max(config.lock_timeout))?;
        // A note of another version tells nothing: the next signal comes at once.
        let note = turn
            .note()
            .and_then(|note| serde_json::from_slice::<Note>(&note).ok());
        let last = note.filter(|note| note.api_version == API_VERSION);
        Ok(Memory { turn, last })
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
        let left = every.checked_sub(Duration::from_millis(since));
        left.filter(|left| !left.is_zero())
    }

    /// Notes a reload, the last act of the turn.
    pub fn note(self, instances: BTreeSet<String>, unaware: BTreeSet<i32>) -> Result<()> {
        let note = Note {
            api_version: API_VERSION.to_owned(),
            kind: "DcgmReload".to_owned(),
            time: now(),
            instances,
            unaware,
        };
        let text = serde_json::to_vec(&note).context(|| "write the note of the reload")?;
        self.turn.set_note(&text)
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
