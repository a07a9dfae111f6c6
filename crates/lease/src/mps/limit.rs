//! The memory limit in the words of the control program.

/// Returns the command that sets the limit for servers that start afterwards. The ordinal is that of the
/// daemon's only GPU. The program takes MiB as they are, but cuts other forms in silence.
pub(super) fn set(mib: u64) -> String {
    format!("set_default_device_pinned_mem_limit 0 {mib}M")
}

/// The command that reads the limit.
pub(super) const GET: &str = "get_default_device_pinned_mem_limit 0";

/// Returns the answer that proves the limit: the program cuts it to whole GiB.
pub(super) fn answer(mib: u64) -> String {
    match mib / 1024 {
        0 => format!("{mib}M"),
        gib => format!("{gib}G"),
    }
}

/// The command that lists the servers of a daemon.
pub(super) const SERVERS: &str = "get_server_list";

/// Returns the command that sets the limit of a running server, for its next clients.
pub(super) fn set_of(server: u32, mib: u64) -> String {
    format!("set_device_pinned_mem_limit {server} 0 {mib}M")
}

/// Returns the command that reads the limit of a running server.
pub(super) fn get_of(server: u32) -> String {
    format!("get_device_pinned_mem_limit {server} 0")
}

/// Returns the limit that an answer tells, in MiB; 0 is no limit. Returns none for other words.
pub(super) fn told(answer: &str) -> Option<u64> {
    let (number, factor) = match answer.strip_suffix('G') {
        Some(number) => (number, 1024),
        None => (answer.strip_suffix('M')?, 1),
    };
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    // A number beyond 64 bits is no limit of a GPU either.
    is_number.then(|| number.parse().unwrap_or(u64::MAX).saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expects_answer_cut_to_whole_units() {
        for (mib, expected) in [(100, "100M"), (1024, "1G"), (5000, "4G"), (20141, "19G")] {
            assert_eq!(answer(mib), expected);
        }
        assert_eq!(set(5000), "set_default_device_pinned_mem_limit 0 5000M");
    }

    #[test]
    fn reads_answers_of_program() {
        for (answer, expected) in [
            ("8G", Some(8192)),
            ("500M", Some(500)),
            ("0M", Some(0)),
            ("0G", Some(0)),
            ("99999999999999999999G", Some(u64::MAX)),
            ("17179869183G", Some(17_592_186_043_392)),
            ("", None),
            ("G", None),
            ("-1G", None),
            ("8 G", None),
            ("8", None),
            ("Server 7 not found", None),
        ] {
            assert_eq!(told(answer), expected, "{answer}");
        }
    }
}
