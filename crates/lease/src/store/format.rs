//! Reads and writes a record on disk: a line with the format and hash of the next line, then the record as
//! JSON.
//!
//! A record of another version counts as damaged.

use crate::error::{Context, Error, Result};
use crate::files::{self, Links};
use crate::framed::Form;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::Path;

/// The version of all records.
pub(super) const VERSION: &str = "runmig.dev/v2";

/// The limit of a record, in bytes. A lease is about 2 KiB; paths and pod names could make it a few times
/// longer.
pub(super) const MAX_SIZE: u64 = 256 * 1024;

/// A record of the ledger.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// The version and kind in the header.
    const FORM: Form;

    /// Returns the name of the record's file.
    fn file_name(&self) -> String;

    /// Returns the largest size of the record in its present state, in bytes.
    fn max_size(&self) -> u64;
}

/// Returns a record as bytes. It fails for a path that is not UTF-8, which JSON cannot express.
pub(crate) fn encode<R: Record>(record: &R) -> Result<Vec<u8>> {
    let body = serde_json::to_vec(record).map_err(|e| {
        Error::new(format!("cannot write the record as JSON: {e}"))
            .hint("use a bundle, --root and low-level runtime whose paths are valid UTF-8")
    })?;
    Ok(R::FORM.frame(&body))
}

/// Returns the record of a whole file.
pub(crate) fn decode<R: Record>(bytes: &[u8]) -> Result<R> {
    serde_json::from_str(R::FORM.body(bytes)?).because(|| format!("it is no {}", R::FORM.kind))
}

/// Checks the size of a record before the write.
pub(super) fn check_size<R: Record>(record: &R, size: usize) -> Result<()> {
    let most = record.max_size();
    if size as u64 <= most {
        return Ok(());
    }
    Err(
        Error::new(format!("it would be {size} bytes, more than {most}"))
            .hint("give the container a shorter id, root, bundle and cgroup path"),
    )
}

/// Reads a record. Returns none if the file is gone. A record under a name that is not its own does not
/// count, because one record would be two.
pub(super) fn read<R: Record>(file: &Path) -> Result<Option<R>> {
    let opened = match files::open(file, Links::Refuse) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).context(|| "open it"),
    };
    let bytes = opened.read(MAX_SIZE).context(|| "read it")?;
    let record: R = decode(&bytes)?;
    if Some(record.file_name().as_str()) != file.file_name().and_then(|n| n.to_str()) {
        return Err(Error::new("its name is not that of the record in it"));
    }
    Ok(Some(record))
}
