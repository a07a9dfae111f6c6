//! Seats, as the views name them.

use super::list::Shown;
use runmig_lease::model::Level;
use runmig_lease::store::{Entry, Lease, Resource};

/// Returns the seat of an entry, if it is one.
pub fn shown(entry: &Entry) -> Option<Shown<'_>> {
    let resource = &entry.instance().resource;
    let slice = resource.mig_slice()?;
    let share = entry.lease().and_then(Lease::share);
    let (memory_mib, booked_mib, level) = match (share, resource) {
        (Some(share), Resource::Mig(_)) => {
            let level = slice.seats.map(|seats| seats.level);
            (share.memory_mib, share.booked_mib, level)
        }
        // The daemon of a seat stays for a moment after its lease.
        (_, Resource::Mps(daemon)) => (daemon.limit_mib, daemon.booked_mib, daemon.gpu.level),
        (None, Resource::Mig(_)) | (_, Resource::Gpu(_)) => return None,
    };
    Some(Shown {
        kind: "seat",
        name: &slice.profile,
        memory_bytes: Some(memory_mib << 20),
        booked_bytes: Some(booked_mib << 20),
        enforcement: level.map(Level::name),
    })
}

/// Returns a seat for people: `10048Mi of 3g.40gb`.
pub fn portion(entry: &Entry) -> Option<String> {
    let seat = shown(entry)?;
    let mib = seat.memory_bytes.unwrap_or_default() >> 20;
    Some(format!("{mib}Mi of {}", seat.name))
}
