//! The sidecar of an edited config.json: the edit's lease, the hashes of runmig's files, the original.

use runmig_lease::Author;
use runmig_lease::error::{Context, Result};
use runmig_lease::framed::sha256;
use serde::{Deserialize, Serialize};

/// A sidecar: its first line, and the original behind that.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sidecar {
    version: u32,
    #[serde(flatten)]
    pub author: Author,
    /// The SHA-256 hash of each config.json that runmig may have written.
    written: Vec<String>,
    /// The SHA-256 hash of the original.
    #[serde(rename = "original")]
    hash: String,
    #[serde(skip)]
    pub original: Vec<u8>,
}

const VERSION: u32 = 1;

impl Sidecar {
    pub const HEADER_LIMIT: u64 = 1 << 20;

    pub fn new(author: Author, original: &[u8], edited: &[u8]) -> Self {
        Sidecar {
            version: VERSION,
            author,
            written: vec![sha256(edited)],
            hash: sha256(original),
            original: original.to_owned(),
        }
    }

    pub fn also_wrote(&mut self, bytes: &[u8]) {
        self.written.push(sha256(bytes));
    }

    pub fn wrote(&self, bytes: &[u8]) -> bool {
        self.written.contains(&sha256(bytes))
    }

    /// Returns the bytes of the file. Drops the records if the first line would be too long.
    pub fn bytes(&mut self) -> Result<Vec<u8>> {
        let what = || "write the header as JSON";
        let mut out = serde_json::to_vec(self).context(what)?;
        if out.len() as u64 >= Self::HEADER_LIMIT {
            // The original matters more: records help only after the loss of the ledger.
            self.author.records.clear();
            out = serde_json::to_vec(self).context(what)?;
        }
        out.push(b'\n');
        out.extend_from_slice(&self.original);
        Ok(out)
    }

    /// Parses a sidecar. Returns none unless the bytes are exactly those that `bytes` returned.
    pub fn parse(mut bytes: Vec<u8>) -> Option<Self> {
        let end = bytes.iter().position(|b| *b == b'\n')?;
        let sidecar: Sidecar = serde_json::from_slice(&bytes[..end]).ok()?;
        bytes.drain(..=end);
        let is_whole = sidecar.version == VERSION && sidecar.hash == sha256(&bytes);
        is_whole.then_some(Sidecar {
            original: bytes,
            ..sidecar
        })
    }
}
