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
}
