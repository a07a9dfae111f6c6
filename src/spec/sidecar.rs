//! What is kept beside an edited config.json: whose edit it is, what we wrote, the original.

use crate::error::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;

#[derive(Debug)]
pub struct Sidecar {
    pub lease: String,
    written: Vec<String>,
    pub original: Vec<u8>,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    lease: String,
    /// SHA-256 of each config.json of ours that may be there.
    written: Vec<String>,
    /// SHA-256 of what follows.
    original: String,
}

const VERSION: u32 = 1;

impl Sidecar {
    pub const HEADER_LIMIT: u64 = 4096;

    pub fn new(lease: &str, original: &[u8], edited: &[u8]) -> Self {
        Sidecar {
            lease: lease.to_owned(),
            written: vec![hash(edited)],
            original: original.to_owned(),
        }
    }

    pub fn also_wrote(&mut self, bytes: &[u8]) {
        self.written.push(hash(bytes));
    }

    pub fn wrote(&self, bytes: &[u8]) -> bool {
        self.written.contains(&hash(bytes))
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let header = Header {
            version: VERSION,
            lease: self.lease.clone(),
            written: self.written.clone(),
            original: hash(&self.original),
        };
        let mut out = serde_json::to_vec(&header).context(|| "write the header as JSON")?;
        out.push(b'\n');
        out.extend_from_slice(&self.original);
        Ok(out)
    }

    /// None for anything that is not, to the byte, what `to_bytes` wrote.
    pub fn parse(mut bytes: Vec<u8>) -> Option<Self> {
        let end = bytes.iter().position(|b| *b == b'\n')?;
        let header: Header = serde_json::from_slice(&bytes[..end]).ok()?;
        bytes.drain(..=end);
        let whole = header.version == VERSION && header.original == hash(&bytes);
        whole.then_some(Sidecar {
            lease: header.lease,
            written: header.written,
            original: bytes,
        })
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
