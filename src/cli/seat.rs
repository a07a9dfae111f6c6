//! Seats, as `migctl list` names them.

use runmig_lease::store::Entry;

/// Returns a seat for people: `10048Mi of 3g.40gb`. None for another portion.
pub fn portion(entry: &Entry) -> Option<String> {
    let seat = Some(entry.shown()).filter(|shown| shown.kind == "seat")?;
    let mib = seat.memory_bytes.unwrap_or_default() >> 20;
    Some(format!("{mib}Mi of {}", seat.name))
}
