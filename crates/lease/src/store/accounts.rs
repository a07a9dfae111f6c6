//! What each create tells of its leases, for a repair that finds no whole generation of the ledger.
//!
//! ```text
//! accounts/<lease>    the lease and its instance, as they were when the container was made. It goes with the lease
//! ```
//!
//! The driver knows neither shares nor seats nor whole GPUs, nor which slice is a container's. An account is not synced: it
//! serves the boot in which it was written.

use super::format::{decode, encode};
use super::lease::Held;
use super::{Store, make_folder};
use crate::effect;
use crate::error::{Context, Error, Result};
use crate::files::{self, Links};
use crate::model::LeaseId;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub(super) const FOLDER: &str = "accounts";
/// The limit of an account, in bytes.
const MAX_SIZE: u64 = 512 * 1024;

impl Store {
    /// Writes the account of a lease.
    pub(crate) fn put_account(&self, held: &Held) -> Result<()> {
        let folder = self.dir().join(FOLDER);
        let file = folder.join(held.lease.id.as_str());
        let what = || format!("write {}", file.display());
        if !folder.is_dir() {
            make_folder(&folder).context(what)?;
        }
        let bytes = [encode(&held.lease)?, encode(&held.instance)?].concat();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let mut out = effect::open(&options, &file).context(what)?;
        effect::write_all(&mut out, &bytes).context(what)
    }

    /// Removes the account of a lease, if there is one.
    pub(crate) fn remove_account(&self, lease: &LeaseId) {
        let file = self.dir().join(FOLDER).join(lease.as_str());
        if file.exists()
            && let Err(e) = effect::remove_file(&file)
            && e.kind() != ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {e}", file.display());
        }
    }

    /// Returns all accounts.
    pub(crate) fn accounts(&self) -> Vec<(LeaseId, Result<Held>)> {
        let entries = std::fs::read_dir(self.dir().join(FOLDER));
        let account = |entry: std::fs::DirEntry| {
            let lease = LeaseId::new(entry.file_name().to_string_lossy());
            (lease, read(&entry.path()))
        };
        { entries.into_iter().flatten().flatten() }
            .map(account)
            .collect()
    }
}

fn read(file: &Path) -> Result<Held> {
    let what = || format!("read {}", file.display());
    let opened = files::open(file, Links::Refuse).context(what)?;
    let bytes = opened.read(MAX_SIZE).context(what)?;
    // Each record has two lines.
    let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let end = ends.nth(1).map(|(at, _)| at + 1);
    let end = end
        .ok_or_else(|| Error::new("it is cut off"))
        .context(what)?;
    let (lease, instance) = bytes.split_at(end);
    Ok(Held {
        lease: decode(lease).context(what)?,
        instance: decode(instance).context(what)?,
    })
}
