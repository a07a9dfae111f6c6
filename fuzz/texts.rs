//! Texts of the kernel, of low-level runtimes and of other versions of runmig.

use super::{or_told, told};
use runmig::fuzzing;
use runmig_lease::model::Process;
use runmig_lease::process::{Reads, in_cgroup};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The process that the texts are about.
const OTHER: Process = Process {
    pid: 7,
    start_time: 12345,
};
const CGROUP: &str = "/a/b";
/// This process.
const OWN: u32 = 1;

/// Divides the input: `stat`, `cgroup`, `status`, `mountinfo`, a runtime's `state.json`, `/proc/devices`,
/// an access file.
const DIVIDER: &[u8] = b"\n--\n";

/// Reads what the kernel and a low-level runtime say of a process, and the driver's tables.
pub fn machine(bytes: &[u8]) {
    let mut rest = bytes;
    let mut next = || {
        let at = rest.windows(DIVIDER.len()).position(|w| w == DIVIDER);
        let (text, left) = match at {
            Some(at) => (&rest[..at], &rest[at + DIVIDER.len()..]),
            None => (rest, &[][..]),
        };
        rest = left;
        text
    };
    let proc = Proc {
        other: OTHER,
        stat: next(),
        cgroup: next(),
        status: next(),
        mountinfo: next(),
        state: next(),
    };
    let (devices, access) = (next(), next());
    liveness(&proc);
    let devices = String::from_utf8_lossy(devices);
    for (major, name) in fuzzing::devices(&devices) {
        assert!(devices.contains(&name) && devices.contains(&major.to_string()));
    }
    let access = String::from_utf8_lossy(access);
    or_told(fuzzing::access_field(&access, "DeviceFileMinor"));
}

/// A `/proc` of two processes, this one and another, whose files hold given bytes.
struct Proc<'a> {
    other: Process,
    stat: &'a [u8],
    cgroup: &'a [u8],
    status: &'a [u8],
    mountinfo: &'a [u8],
    /// The low-level runtime's own record of a container.
    state: &'a [u8],
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
        Ok(OWN.to_string().into())
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

/// A text that is cut off or is no text of the kernel's never says that a process is dead.
fn liveness(proc: &Proc<'_>) {
    let stat = String::from_utf8_lossy(proc.stat);
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = behind_name.split_ascii_whitespace();
    let state = fields.next().unwrap_or_default();
    let start_time: Option<u64> = fields.nth(18).and_then(|field| field.parse().ok());
    let has_ended = state.starts_with(['Z', 'X', 'x']);
    let is_alive = fuzzing::is_alive(proc, &OTHER);
    match start_time {
        None => assert!(is_alive, "no start time, and counted as dead"),
        Some(OTHER_START) if !has_ended => assert!(is_alive, "it runs, and counted as dead"),
        Some(_) => {}
    }
    let cgroups = String::from_utf8_lossy(proc.cgroup);
    let is_in = { cgroups.lines() }.any(|line| line.splitn(3, ':').nth(2) == Some(CGROUP));
    if is_in && start_time.is_some() && !has_ended {
        let found = in_cgroup(proc, &[CGROUP.to_owned()]);
        assert!(!matches!(found, Ok(None)), "its cgroup counted as empty");
    }
    let (init, obstacle) = fuzzing::recorded_init(proc, OWN);
    if let Ok(Some(init)) = init {
        let state = String::from_utf8_lossy(proc.state);
        assert!(state.contains("init_process_pid"), "{init:?}");
    }
    assert!(obstacle.is_none_or(|why| !why.is_empty()));
}

const OTHER_START: u64 = OTHER.start_time;

/// A ledger, and a record of this version or another one.
pub fn versions(record: &[u8]) {
    or_told(fuzzing::record(record));
    // The same record under the header of another version is named, never read.
    for framed in fuzzing::records_of_body(record) {
        let framed = String::from_utf8_lossy(&framed);
        let newer = framed.replacen("runmig.dev/v4", "runmig.dev/v5", 1);
        let refused = fuzzing::record(newer.as_bytes()).expect_err("another version is not read");
        told(&refused);
    }
    or_told(fuzzing::rewritten_ledger(record));
    if let Ok(body) = std::str::from_utf8(record) {
        let framed = fuzzing::ledger_of_body(body);
        if let Some(Some(written)) = or_told(fuzzing::rewritten_ledger(&framed)) {
            let again = fuzzing::rewritten_ledger(&written).expect("what was written is read");
            assert_eq!(again, Some(written));
        }
    }
}
