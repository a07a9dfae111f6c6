//! Doors for the fuzz targets to private functions: every parser of what others wrote, without
//! the files around it. No part of the API.

use crate::error::Result;
use crate::gpu::device_nodes;
use crate::model::Process;
use crate::process::{self, Reads, View};
use crate::reclaim::liveness::Liveness;
use crate::store::{self, Instance, Key, Lease, Record, decode, encode};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// A record of either kind.
#[derive(Debug, PartialEq)]
pub enum AnyRecord {
    Lease(Box<Lease>),
    Instance(Box<Instance>),
}

pub fn record(bytes: &[u8]) -> Result<AnyRecord> {
    match decode(bytes) {
        Ok(lease) => Ok(AnyRecord::Lease(Box::new(lease))),
        Err(e) => match decode(bytes) {
            Ok(instance) => Ok(AnyRecord::Instance(Box::new(instance))),
            Err(_) => Err(e),
        },
    }
}

/// With the header of each kind that its hash asks for, which no fuzzer would guess.
pub fn records_of_body(body: &[u8]) -> [Vec<u8>; 2] {
    [Lease::FORM, Instance::FORM].map(|form| form.frame(body))
}

pub fn record_bytes(record: &AnyRecord) -> Vec<u8> {
    let bytes = match record {
        AnyRecord::Lease(lease) => encode(&**lease),
        AnyRecord::Instance(instance) => encode(&**instance),
    };
    bytes.expect("what was read from JSON has only UTF-8 paths")
}

/// Returns what a writer makes of the ledger that a reader reads; none for a damaged one.
pub fn rewritten_ledger(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    store::rewritten_ledger(bytes)
}

/// With the header that its hash asks for, which no fuzzer would guess.
pub fn ledger_of_body(body: &str) -> Vec<u8> {
    store::ledger_of_body(body)
}

/// Returns the majors and names of the character devices in a text like `/proc/devices`.
pub fn devices(text: &str) -> Vec<(u32, String)> {
    device_nodes::character_majors(text)
}

/// Returns the number of a line in a text like a capability's access file.
pub fn access_field(text: &str, name: &str) -> Result<u32> {
    device_nodes::field(text, name, Path::new("access"))
}

/// A `/proc` of two processes, this one and another, whose files hold given bytes.
pub struct Proc<'a> {
    pub other: Process,
    pub stat: &'a [u8],
    pub cgroup: &'a [u8],
    pub status: &'a [u8],
    pub mountinfo: &'a [u8],
    /// The low-level runtime's own record of a container.
    pub state: &'a [u8],
}

impl Proc<'_> {
    const OWN: u32 = 1;

    pub fn is_alive(&self) -> bool {
        process::is_alive_by(self, &self.other)
    }

    pub fn in_cgroup(&self, cgroup: &str) -> io::Result<Option<i32>> {
        process::in_cgroup(self, &[cgroup.to_owned()])
    }

    /// Returns init as the low-level runtime's record has it, and the obstacle to a judgement here.
    pub fn recorded_init(&self) -> (std::result::Result<Option<Process>, String>, Option<String>) {
        let view = View::new(self, Self::OWN, true);
        let key = Key::new("/run/runc".into(), "c".to_owned());
        let init = Liveness::new(self, &view).recorded_init(&key);
        (init, view.obstacle)
    }
}

impl Reads for Proc<'_> {
    fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let name = path.file_name().and_then(|name| name.to_str());
        let bytes = match name.unwrap_or_default() {
            "stat" => self.stat,
            "cgroup" => self.cgroup,
            "status" if path.starts_with("/proc") => self.status,
            "mountinfo" => self.mountinfo,
            "state.json" => self.state,
            _ => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
        };
        Ok(bytes.to_vec())
    }

    fn names(&self, _dir: &Path) -> io::Result<Vec<OsString>> {
        Ok(vec![self.other.pid.to_string().into()])
    }

    fn link(&self, _path: &Path) -> io::Result<PathBuf> {
        Ok(Self::OWN.to_string().into())
    }

    fn identity(&self, _path: &Path) -> io::Result<(u64, u64)> {
        Ok((4, 1))
    }

    fn is_locked(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    fn answers(&self, _paths: &[PathBuf]) -> bool {
        true
    }
}
