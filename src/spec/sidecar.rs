//! The sidecar of an edited config.json: the edit's lease, the hashes of runmig's files, the original.

use runmig_lease::Author;
use runmig_lease::error::{Context, Result};
use runmig_lease::framed::sha256;
use runmig_lease::model::{BootId, LeaseId};
use serde::{Deserialize, Serialize};

#[derive(Debug)]
pub struct Sidecar {
    pub author: Author,
    written: Vec<String>,
    pub original: Vec<u8>,
}

/// The first line of a sidecar.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    lease: LeaseId,
    /// The SHA-256 hash of each config.json that runmig may have written.
    written: Vec<String>,
    /// The SHA-256 hash of the bytes after the header.
    original: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    records: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ledger: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<BootId>,
}

const VERSION: u32 = 1;

impl Sidecar {
    pub const HEADER_LIMIT: u64 = 1 << 20;

    pub fn new(author: Author, original: &[u8], edited: &[u8]) -> Self {
        Sidecar {
            author,
            written: vec![sha256(edited)],
            original: original.to_owned(),
        }
    }

    pub fn also_wrote(&mut self, bytes: &[u8]) {
        self.written.push(sha256(bytes));
    }

    pub fn wrote(&self, bytes: &[u8]) -> bool {
        self.written.contains(&sha256(bytes))
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut header = Header {
            version: VERSION,
            lease: self.author.lease.clone(),
            written: self.written.clone(),
            original: sha256(&self.original),
            records: self.author.records.clone(),
            ledger: self.author.ledger.clone(),
            boot: self.author.boot.clone(),
        };
        let write =
            |header: &Header| serde_json::to_vec(header).context(|| "write the header as JSON");
        let mut out = write(&header)?;
        if out.len() as u64 >= Self::HEADER_LIMIT {
            // The original matters more: records help only after the loss of the ledger.
            header.records.clear();
            out = write(&header)?;
        }
        out.push(b'\n');
        out.extend_from_slice(&self.original);
        Ok(out)
    }

    /// Parses a sidecar. Returns none unless the bytes are exactly those that `to_bytes` wrote.
    pub fn parse(mut bytes: Vec<u8>) -> Option<Self> {
        let end = bytes.iter().position(|b| *b == b'\n')?;
        let header: Header = serde_json::from_slice(&bytes[..end]).ok()?;
        bytes.drain(..=end);
        let whole = header.version == VERSION && header.original == sha256(&bytes);
        whole.then_some(Sidecar {
            author: Author {
                lease: header.lease,
                records: header.records,
                ledger: header.ledger,
                boot: header.boot,
            },
            written: header.written,
            original: bytes,
        })
    }
}
