//! MPS's memory limits, read and printed as NVIDIA's programs of driver 580 do.

use std::collections::BTreeMap;

const MIB: u32 = 20;
const GIB: u32 = 30;

/// Limits in bytes, by the device as the command named it: an ordinal or a UUID. Nothing checks
/// that the device exists.
#[derive(Clone, Default)]
pub struct Limits(BTreeMap<String, u64>);

impl Limits {
    /// Sets the limit of a device. A value of zero, or one without a number, removes it.
    pub fn set(&mut self, device: &str, value: &str) {
        match parse_leniently(value) {
            0 => self.0.remove(device),
            bytes => self.0.insert(device.to_owned(), bytes),
        };
    }

    /// Returns the limit under exactly this name of a device.
    pub fn get(&self, device: &str) -> Option<u64> {
        self.0.get(device).copied()
    }

    /// Returns the limit that holds for a device, by its ordinal or its UUID.
    pub fn of_device(&self, ordinal: usize, uuid: &str) -> Option<u64> {
        let names = [ordinal.to_string(), uuid.to_owned()];
        names.iter().filter_map(|name| self.get(name)).min()
    }
}

/// Reads a number as C's `strtoll` does, which ignores what follows. The unit is MiB unless a G
/// comes right after the number: `1.5G` is 1 MiB, and `-1G` nearly 2⁶⁴ bytes.
fn parse_leniently(text: &str) -> u64 {
    let sign = text.len() - text.trim_start_matches(['-', '+']).len();
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let number: i64 = text[..sign + digits].parse().unwrap_or(0);
    let unit = match text[sign + digits..].bytes().next() {
        Some(b'G' | b'g') => GIB,
        _ => MIB,
    };
    number.cast_unsigned() << unit
}

/// Prints a limit in whole units, cut: `4G` for 5000 MiB.
pub fn display(bytes: u64) -> String {
    match bytes >> GIB {
        0 => format!("{}M", bytes >> MIB),
        gib => format!("{gib}G"),
    }
}

/// Returns the limit of a client: that of its server, lowered by the client's own environment.
///
/// `entries` is the value of the client's `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`, and `visible` lists
/// the UUIDs of the devices that the client sees, of which it uses the first. One bad entry drops every limit, the server's
/// included: a device that the client does not see, zero, or something that is no size.
pub fn of_client(server: Option<u64>, entries: Option<&str>, visible: &[String]) -> Option<u64> {
    let Some(entries) = entries else {
        return server;
    };
    let mut own = None;
    for entry in entries.split(',') {
        let (name, bytes) = parse_entry(entry)?;
        let index = match name.parse::<usize>() {
            Ok(index) => Some(index).filter(|index| *index < visible.len()),
            Err(_) => visible.iter().position(|uuid| uuid == name),
        }?;
        if index == 0 {
            own = Some(bytes);
        }
    }
    server.into_iter().chain(own).min()
}

/// Reads `DEVICE=SIZE` with an integer in G or M above zero.
fn parse_entry(entry: &str) -> Option<(&str, u64)> {
    let (name, size) = entry.split_once('=')?;
    let units = [('G', GIB), ('M', MIB)];
    let (number, unit) = units
        .iter()
        .find_map(|(letter, unit)| Some((size.strip_suffix(*letter)?, *unit)))?;
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    Some((name, number.checked_mul(1 << unit)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(value: &str) -> String {
        let mut limits = Limits::default();
        limits.set("0", value);
        limits.get("0").map_or("none".into(), display)
    }

    // sharing.md, "MPS: setting and reading the limit".
    #[test]
    fn cuts_answers_to_whole_units() {
        let rows = ["8G 8G", "3072M 3G", "5000M 4G", "20141M 19G", "100M 100M"];
        for row in rows {
            let (value, answer) = row.split_once(' ').unwrap();
            assert_eq!(read_back(value), answer, "{value}");
        }
    }

    // The same section: the daemon takes bad values without a word.
    #[test]
    fn takes_bad_values() {
        assert_eq!(read_back("1.5G"), "1M");
        assert_eq!(read_back("-1G"), "17179869183G");
        assert_eq!(read_back("nonsense"), "none");
        assert_eq!(read_back("0G"), "none");
    }

    // The table of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in "MPS: how far the limit holds".
    #[test]
    fn reads_limits_of_environment() {
        let gib = |n: u64| Some(n << GIB);
        let visible = ["GPU-a".to_owned()];
        let limit = |server, value| of_client(server, value, &visible);
        assert_eq!(limit(gib(4), None), gib(4));
        assert_eq!(limit(gib(4), Some("0=2G")), gib(2));
        assert_eq!(limit(gib(4), Some("GPU-a=2G")), gib(2));
        assert_eq!(limit(gib(4), Some("0=16G")), gib(4));
        assert_eq!(limit(None, Some("0=16G")), gib(16));
        for bad in ["1=4G", "GPU-b=4G", "0=2G,1=4G", "rubbish", "0=0G"] {
            assert_eq!(limit(gib(4), Some(bad)), None, "{bad}");
        }
    }
}
