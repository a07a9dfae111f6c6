//! The name of a record. runmig writes it once, in the directory and not in the file. So a record with
//! every byte lost still tells its lease, place and boot. runmig neither gives its slice twice nor loses
//! it.
//!
//! ```text
//! <key>.<lease>.<boot>.<gpu>.<profile>.<start>.<size>
//! <key>.<lease>.<boot>.<gpu>.<profile>.<start>.<size>.adopted
//! <key>.<lease>.<boot>.<gpu>.<profile>.<start>.<size>.shared
//! ```
//!
//! The last two endings say that the instance outlives this lease. An older program takes such a file for a
//! foreign one, and leaves both alone. Every version follows one rule: it releases a lease by a name that
//! it understands, in a record of any version. A newer version with another meaning needs another ending.

use super::record::{Key, Lease};
use crate::model::Placement;

/// The name of a record, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordName {
    /// The hash of the container's key: `Key::prefix` without its dot.
    pub key: String,
    /// The id of the lease.
    pub lease: String,
    /// The boot of the lease.
    pub boot_id: String,
    /// The UUID of the GPU.
    pub gpu_uuid: String,
    /// The id of the profile.
    pub profile_id: u32,
    /// The memory slices of the slice.
    pub placement: Placement,
    /// The relation between the lease and its instance.
    pub ownership: Ownership,
}

/// The relation between the ends of a lease and of its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The instance ends with the lease.
    Own,
    /// An administrator made the instance, and ends it.
    Adopted,
    /// The instance ends with the last of several leases.
    Shared,
    /// A newer version defined the relation.
    Unknown,
}

impl Ownership {
    fn of(lease: &Lease) -> Ownership {
        match (lease.adopted, &lease.shared_in) {
            (true, _) => Ownership::Adopted,
            (false, Some(_)) => Ownership::Shared,
            (false, None) => Ownership::Own,
        }
    }
}

impl RecordName {
    /// Returns the name of a lease's record.
    pub fn of(lease: &Lease) -> RecordName {
        let plain = |text: &str| -> String {
            let fits = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
            text.chars().filter(fits).collect()
        };
        RecordName {
            key: lease.holder.key.prefix().trim_end_matches('.').to_owned(),
            lease: plain(&lease.id),
            boot_id: plain(&lease.boot_id),
            gpu_uuid: plain(&lease.slice.gpu_uuid),
            profile_id: lease.slice.profile_id,
            placement: lease.slice.placement,
            ownership: Ownership::of(lease),
        }
    }

    /// Returns whether the container with this key has the lease.
    pub fn is_of(&self, key: &Key) -> bool {
        key.prefix().strip_suffix('.') == Some(&self.key)
    }

    /// Returns whether no container has the lease: the slice is idle, or its release failed without a
    /// container.
    pub(crate) fn is_nobodys(&self) -> bool {
        self.is_of(&Key::default())
    }

    /// Returns whether both name the same place in the same boot.
    pub(crate) fn is_at_place_of(&self, other: &RecordName) -> bool {
        (&self.boot_id, &self.gpu_uuid, self.placement)
            == (&other.boot_id, &other.gpu_uuid, other.placement)
    }

    /// Parses the name of a file. Returns none if it is not the name of a record.
    pub fn parse(name: &str) -> Option<RecordName> {
        let parts: Vec<&str> = name.split('.').collect();
        let [key, lease, boot, gpu, profile, start, size, ref tail @ ..] = parts[..] else {
            return None;
        };
        let ownership = match tail {
            [] => Ownership::Own,
            ["adopted"] => Ownership::Adopted,
            ["shared"] => Ownership::Shared,
            _ => Ownership::Unknown,
        };
        Some(RecordName {
            key: key.to_owned(),
            lease: lease.to_owned(),
            boot_id: boot.to_owned(),
            gpu_uuid: gpu.to_owned(),
            profile_id: profile.parse().ok()?,
            placement: Placement {
                start: start.parse().ok()?,
                size: size.parse().ok()?,
            },
            ownership,
        })
    }

    /// Returns the name of the file.
    pub fn name(&self) -> String {
        let tail = match self.ownership {
            Ownership::Own | Ownership::Unknown => "",
            Ownership::Adopted => ".adopted",
            Ownership::Shared => ".shared",
        };
        format!(
            "{}.{}.{}.{}.{}.{}.{}{tail}",
            self.key,
            self.lease,
            self.boot_id,
            self.gpu_uuid,
            self.profile_id,
            self.placement.start,
            self.placement.size
        )
    }
}
