//! The processes of this machine by their command names.

use runmig_lease::files;
use std::path::Path;

const MAX_COMM: u64 = 64;

/// Returns the processes of this machine with their command names.
pub fn commands() -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let command = |pid: i32| {
        let file = format!("/proc/{pid}/comm");
        let command = files::read_text(Path::new(&file), MAX_COMM).ok()?;
        Some((pid, command.trim_end().to_owned()))
    };
    pids.filter_map(command).collect()
}

/// Returns the processes with this command name.
pub fn called(name: &str) -> Vec<i32> {
    let all = commands().into_iter();
    all.filter(|(_, command)| command == name)
        .map(|(pid, _)| pid)
        .collect()
}
