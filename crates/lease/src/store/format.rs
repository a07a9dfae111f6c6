//! Writes a lease or an instance for the sidecar of a bundle and for an account, and reads it: a line with the format and hash of the
//! next line, then the record as JSON.

use crate::error::{Context, Error, Result};
use crate::framed::Form;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version of the ledger and of all records.
pub(super) const VERSION: &str = "runmig.dev/v4";

/// A lease or an instance.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// The version and kind in the header.
    const FORM: Form;
}

/// Returns a record as bytes. It fails for a path that is not UTF-8, which JSON cannot express.
pub(crate) fn encode<R: Record>(record: &R) -> Result<Vec<u8>> {
    let body = serde_json::to_vec(record).map_err(|e| {
        Error::new(format!("cannot write the record as JSON: {e}"))
            .hint("use a bundle, --root and low-level runtime whose paths are valid UTF-8")
    })?;
    Ok(R::FORM.frame(&body))
}

/// Returns the record of these bytes.
pub(crate) fn decode<R: Record>(bytes: &[u8]) -> Result<R> {
    serde_json::from_str(R::FORM.body(bytes)?)
        .because(|| format!("it is not of kind {}", R::FORM.kind))
}
