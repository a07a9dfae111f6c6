//! The form of files that runmig writes for itself: a line that names the version, the kind and the SHA-256
//! of the second line; then that line. A lease or an instance is so in the sidecar of a bundle and in an account.

use crate::error::{Context, Error, Result, printable};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The version and the kind of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub version: &'static str,
    pub kind: &'static str,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    api_version: String,
    kind: String,
    #[serde(default)]
    sha256: String,
}

impl Form {
    /// Returns a body of one line with its header.
    pub(crate) fn frame(self, body: &[u8]) -> Vec<u8> {
        let header = Header {
            api_version: self.version.to_owned(),
            kind: self.kind.to_owned(),
            sha256: sha256(body),
        };
        let header = serde_json::to_string(&header).expect("a header has only strings as keys");
        [header.as_bytes(), b"\n", body, b"\n"].concat()
    }

    /// Returns the body of a whole file of this form.
    pub(crate) fn body(self, bytes: &[u8]) -> Result<&str> {
        let text = std::str::from_utf8(bytes).because(|| "it is not text")?;
        let (head, rest) = text
            .split_once('\n')
            .ok_or_else(|| Error::new("it is cut off"))?;
        let header: Header =
            serde_json::from_str(head).because(|| "the first line is not a header")?;
        if header.api_version != self.version || header.kind != self.kind {
            return Err(Error::new(format!(
                "a {} of {}, and this program reads {} of {}",
                printable(&header.kind),
                printable(&header.api_version),
                self.kind,
                self.version
            ))
            .hint("use the runmig that wrote it"));
        }
        let body = rest
            .strip_suffix('\n')
            .ok_or_else(|| Error::new("it is cut off"))?;
        if header.sha256 != sha256(body.as_bytes()) {
            return Err(Error::new("its hash is wrong"));
        }
        Ok(body)
    }
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The version of the ledger and of all records.
pub(crate) const VERSION: &str = "runmig.dev/v4";

/// A lease or an instance.
pub(crate) trait Record: Serialize + DeserializeOwned {
    const KIND: &'static str;
    const FORM: Form = Form {
        version: VERSION,
        kind: Self::KIND,
    };
}

/// Returns a record as bytes. It fails for a path that is not UTF-8, which JSON cannot express.
pub(crate) fn encode<R: Record>(record: &R) -> Result<Vec<u8>> {
    Ok(R::FORM.frame(json(record, "record")?.as_bytes()))
}

/// Returns what runmig keeps for itself as JSON.
pub(crate) fn json(kept: &impl Serialize, what: &str) -> Result<String> {
    serde_json::to_string(kept).map_err(|e| {
        Error::new(format!("cannot write the {what} as JSON: {e}"))
            .hint("use a bundle, --root and low-level runtime whose paths are valid UTF-8")
    })
}

/// Returns the record of these bytes.
pub(crate) fn decode<R: Record>(bytes: &[u8]) -> Result<R> {
    serde_json::from_str(R::FORM.body(bytes)?)
        .because(|| format!("it is not of kind {}", R::FORM.kind))
}
