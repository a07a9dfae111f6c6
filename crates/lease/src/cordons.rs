//! The GPUs that give nothing new: each look marks them, and a cordon is on file.
//!
//! Cordons lie in the data directory, which outlives a reboot and a repair of the ledger:
//!
//! ```text
//! /var/lib/runmig/cordons.json   the cordoned GPUs by UUID; root's alone
//! /var/lib/runmig/cordons.lock   held while runmig replaces the file
//! ```

use crate::config::Config;
use crate::error::{Context, Error, Result, printable};
use crate::events::EventType;
use crate::files::replace;
use crate::gpu::Queries;
use crate::leases::{Leases, now};
use crate::model::{Closed, Cordon, GpuUuid, MigMode, Sign, SignKind, Snapshot};
use crate::store::Lock;
use crate::{effect, trust};
use std::collections::BTreeMap;
use std::io::ErrorKind;

const FILE: &str = "cordons.json";
const LOCK: &str = "cordons.lock";
/// A cordon takes some 200 bytes, and its reason at most `MAX_REASON`.
const MAX_SIZE: u64 = 256 * 1024;
/// The most characters of a reason, which its reader checks.
pub const MAX_REASON: usize = 256;

/// The cordons by the UUIDs of their GPUs.
type Cordons = BTreeMap<String, Cordon>;

fn read(config: &Config) -> Result<Cordons> {
    let file = config.data_dir.join(FILE);
    let what = || format!("read the cordons in {}", file.display());
    match std::fs::symlink_metadata(&file) {
        // Whoever can write to the folder may have removed the file.
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if config.data_dir.exists() {
                trust::folder(&config.data_dir).context(what)?;
            }
            Ok(Cordons::new())
        }
        _ => {
            let text = trust::read_to_string(&file, MAX_SIZE).context(what)?;
            serde_json::from_str(&text).context(what)
        }
    }
}

/// Marks the GPUs of a look that give nothing new: one call of the driver for each GPU, and one more for its fabric
/// outside of MIG mode. Where the cordons cannot be read, every GPU may be cordoned.
pub(crate) fn mark(config: &Config, driver: &impl Queries, snapshot: &mut Snapshot) {
    let cordons = read(config);
    for gpu in &mut snapshot.gpus {
        let found = Closed {
            signs: signs(config, driver, &gpu.uuid, gpu.mig),
            cordon: { cordons.as_ref().ok() }.and_then(|all| all.get(gpu.uuid.as_str()).cloned()),
            unread: cordons.as_ref().err().map(Error::reason),
            locked: None,
        };
        gpu.closed = (!found.reasons().is_empty()).then_some(found);
    }
}

/// Returns the signs that count against a GPU. Slices use no fabric.
pub(crate) fn signs(
    config: &Config,
    driver: &impl Queries,
    gpu: &GpuUuid,
    mig: MigMode,
) -> Vec<Sign> {
    let health = &config.health;
    let fabric = mig != MigMode::Enabled && !health.ignore.contains(&SignKind::FabricDown);
    let mut signs = driver.signs(gpu, fabric).unwrap_or_else(|e| {
        tracing::warn!("nobody knows whether GPU {gpu} is sick: {e}");
        Vec::new()
    });
    signs.retain(|sign| health.counts(sign));
    signs
}

impl Leases<'_> {
    /// Closes a GPU for new leases of any kind. When it returns, no create chooses by an earlier look. A second cordon
    /// keeps the time of the first, and its reason if it has none itself. The latest says whether the GPU drains.
    ///
    /// # Errors
    /// The file cannot be read or written, or users other than root can write to it.
    pub fn cordon(&self, gpu: &GpuUuid, reason: Option<&str>, drains: bool) -> Result<()> {
        let (before, cordon) = self.change_cordons("cordon", |all| {
            let before = all.get(gpu.as_str()).cloned();
            let mut cordon = before.clone().unwrap_or_else(|| Cordon {
                since: now(),
                ..Cordon::default()
            });
            cordon.drains = drains;
            cordon.reason = reason.map(printable).or(cordon.reason);
            all.insert(gpu.to_string(), cordon.clone());
            (before, cordon)
        })?;
        if before.as_ref() != Some(&cordon) {
            self.observer
                .closed(EventType::Cordoned, gpu, Some(&cordon));
        }
        Ok(())
    }

    /// Opens a GPU again. Returns whether it was cordoned.
    ///
    /// # Errors
    /// As `cordon`.
    pub fn uncordon(&self, gpu: &GpuUuid) -> Result<bool> {
        let was = self.change_cordons("uncordon", |all| all.remove(gpu.as_str()))?;
        if was.is_some() {
            self.observer.closed(EventType::Uncordoned, gpu, None);
        }
        Ok(was.is_some())
    }

    fn change_cordons<T>(&self, why: &str, change: impl FnOnce(&mut Cordons) -> T) -> Result<T> {
        let dir = &self.config.data_dir;
        let what = || format!("{why} a GPU in {}", dir.display());
        trust::room_for(dir).context(what)?;
        effect::make_dir_all(dir, 0o700).context(what)?;
        trust::folder(dir).context(what)?;
        let lock = Lock::take(&dir.join(LOCK), Some(self.config.lock_timeout), why)?;
        let mut cordons = read(self.config)?;
        let before = cordons.clone();
        let changed = change(&mut cordons);
        if cordons != before {
            let text = serde_json::to_vec_pretty(&cordons).context(what)?;
            if text.len() as u64 > MAX_SIZE {
                return Err(Error::new("there are too many cordons")
                    .hint("uncordon GPUs that are gone, or give shorter reasons"))
                .context(what);
            }
            replace(&dir.join(FILE), &text).context(what)?;
        }
        drop(lock);
        // A create that looked before has this lock until its choice is on record.
        drop(self.store.lock_plan(why)?);
        self.store.wake();
        Ok(changed)
    }
}
