//! Whether a container still lives. Whoever takes a slice from a container that runs does the worst
//! that this program can do, so every sign counts, and what cannot be found out counts as life.

use crate::model::Process;
use crate::process;
use crate::store::{Key, Lease, State};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The first sign of life found, in words; none when the container is gone.
pub fn sign_of_life(lease: &Lease) -> Option<String> {
    if process::is_alive(&lease.creator) {
        return Some(format!("process {} is making it", lease.creator.pid));
    }
    outlives_its_front(lease)
}

/// The same but for its creator, who asks.
pub fn outlives_its_front(lease: &Lease) -> Option<String> {
    if let Some(runtime) = lease.runtime_process.filter(process::is_alive) {
        return Some(format!(
            "its low-level runtime, process {}, is at work",
            runtime.pid
        ));
    }
    container_lives(lease)
}

/// Whether others than those who called us are making it.
pub fn is_made_by_others(lease: &Lease) -> Option<String> {
    let mut makers = std::iter::once(lease.creator).chain(lease.runtime_process);
    if lease.state != State::Creating || makers.clone().any(|m| process::is_ancestor(&m)) {
        return None;
    }
    let maker = makers.find(process::is_alive)?;
    Some(format!("process {} is making it", maker.pid))
}

/// The same for the container alone: at a poststop hook its low-level runtime lives, and waits for us.
pub fn container_lives(lease: &Lease) -> Option<String> {
    if let Some(init) = lease.init.filter(process::is_alive) {
        return Some(format!("its init, process {}, runs", init.pid));
    }
    if lease.state == State::Creating {
        match recorded_init(&lease.holder.key) {
            Ok(Some(init)) if process::is_alive(&init) => {
                return Some(format!("its init, process {}, runs", init.pid));
            }
            Ok(_) => {}
            Err(e) => {
                return Some(format!(
                    "what its low-level runtime wrote cannot be read: {e}"
                ));
            }
        }
    }
    match process::in_cgroup(&lease.cgroups) {
        Ok(pid) => pid.map(|pid| format!("process {pid} lives in its cgroup")),
        Err(e) => Some(format!("who lives in its cgroup cannot be read: {e}")),
    }
}

/// Init as the low-level runtime wrote it down: runc and its kin in `state.json`, crun in `status`.
/// None when there is no such record, which is no sign of death.
pub fn recorded_init(key: &Key) -> Result<Option<Process>, String> {
    // An id is one path component, or the low-level runtime would not have taken it.
    if key.id.is_empty() || key.id.contains('/') || key.id == "." || key.id == ".." {
        return Ok(None);
    }
    let dir = key.root.join(&key.id);
    for (file, pid, start) in [
        ("state.json", "init_process_pid", "init_process_start"),
        ("status", "pid", "process-start-time"),
    ] {
        let Some(record) = read_json(&dir.join(file))? else {
            continue;
        };
        let number = |name: &str| record.get(name).and_then(serde_json::Value::as_u64);
        let (Some(pid), Some(start_time)) = (number(pid), number(start)) else {
            continue;
        };
        let Ok(pid) = i32::try_from(pid) else {
            continue;
        };
        return Ok(Some(Process { pid, start_time }));
    }
    Ok(None)
}

fn read_json(file: &Path) -> Result<Option<serde_json::Value>, String> {
    const MAX: u64 = 16 << 20;
    let mut bytes = Vec::new();
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(file);
    match opened {
        Ok(opened) => opened
            .take(MAX)
            .read_to_end(&mut bytes)
            .map_err(|e| e.to_string())?,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(format!("{}: {e}", file.display())),
    };
    // Half written: the low-level runtime is at work on it, or died there. The cgroup tells.
    Ok(serde_json::from_slice(&bytes).ok())
}
