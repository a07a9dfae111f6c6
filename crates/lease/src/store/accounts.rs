//! What each create tells of its leases, for a repair that finds no whole generation of the ledger.
//!
//! ```text
//! accounts/<lease>    the boot, the lease and its instance, as they were when the container was made. It goes with the lease
//! ```
//!
//! The driver knows neither shares nor seats nor whole GPUs, nor which slice is a container's. An account is not synced: it
//! serves the boot in which it was written.

use super::lease::Held;
use super::{Store, make_folder};
use crate::error::{Context, Error, Result};
use crate::files::{self, Links};
use crate::framed::{decode, encode};
use crate::model::LeaseId;
use crate::{effect, paths};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
        let boot = format!("{}\n", self.boot()).into_bytes();
        let bytes = [boot, encode(&*held.lease)?, encode(&*held.instance)?].concat();
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
            && let Err(e) = files::unlink(&file)
        {
            tracing::warn!("cannot remove {}: {e}", file.display());
        }
    }

    /// Returns all accounts; none for one of an earlier boot.
    pub(crate) fn accounts(&self) -> Vec<(LeaseId, Result<Option<Held>>)> {
        let account = |file: PathBuf| {
            let name = file.file_name().unwrap_or_default();
            let lease = LeaseId::new(name.to_string_lossy());
            (lease, read(&file, self.boot()))
        };
        let files = paths::entries(&self.dir().join(FOLDER));
        files.map(account).collect()
    }
}

fn read(file: &Path, boot: &str) -> Result<Option<Held>> {
    let what = || format!("read {}", file.display());
    let opened = files::open(file, Links::Refuse).context(what)?;
    let bytes = opened.read(MAX_SIZE).context(what)?;
    // The boot has a line, and each record has two.
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let its = lines.next().and_then(|line| line.strip_suffix(b"\n"));
    let its = its
        .ok_or_else(|| Error::new("it is cut off"))
        .context(what)?;
    if its.starts_with(b"{") {
        return Err(Error::new("it is of another version")).context(what);
    }
    if its != boot.as_bytes() {
        return Ok(None);
    }
    let mut record = || lines.by_ref().take(2).collect::<Vec<_>>().concat();
    Ok(Some(Held {
        lease: Arc::new(decode(&record()).context(what)?),
        instance: Arc::new(decode(&record()).context(what)?),
    }))
}
