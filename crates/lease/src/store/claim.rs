//! The name of a record. It is written once and lies in the directory, not in the file. So a record
//! of which every byte is lost still tells its lease, its place and its boot, and its slice is
//! neither given twice nor lost for good.
//!
//! ```text
//! <key>.<lease>.<boot>.<gpu>.<profile>.<start>.<size>
//! <key>.<lease>.<boot>.<gpu>.<profile>.<start>.<size>.adopted
//! <key>.<lease>.<boot>.<gpu>.<profile>.<start>.<size>.shared
//! ```
//!
//! The last two say that the end of this lease is not the end of its instance. A program that is older
//! than they are takes such a file for none of its own, and leaves both alone. So may every version do
//! it: by a name that it understands it ends a lease, of whatever version the record is, and what a
//! newer one means otherwise needs another ending.

use super::record::{Key, Lease};
use crate::model::Placement;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// As in `Key::prefix`, without its dot.
    pub key: String,
    pub lease: String,
    pub boot_id: String,
    pub gpu_uuid: String,
    pub profile_id: u32,
    pub placement: Placement,
    pub tie: Tie,
}

/// How a lease and its instance belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// They end together.
    Own,
    /// An administrator made the instance, and ends it.
    Adopted,
    /// It ends with the last of several leases.
    Shared,
    /// A newer program knows.
    Unknown,
}

impl Tie {
    fn of(lease: &Lease) -> Tie {
        match (lease.adopted, &lease.shared_in) {
            (true, _) => Tie::Adopted,
            (false, Some(_)) => Tie::Shared,
            (false, None) => Tie::Own,
        }
    }
}

impl Claim {
    pub fn of(lease: &Lease) -> Claim {
        let plain = |text: &str| -> String {
            let fits = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
            text.chars().filter(fits).collect()
        };
        Claim {
            key: lease.holder.key.prefix().trim_end_matches('.').to_owned(),
            lease: plain(&lease.id),
            boot_id: plain(&lease.boot_id),
            gpu_uuid: plain(&lease.slice.gpu_uuid),
            profile_id: lease.slice.profile_id,
            placement: lease.slice.placement,
            tie: Tie::of(lease),
        }
    }

    /// Whether the lease is of this container.
    pub fn is_of(&self, key: &Key) -> bool {
        key.prefix().strip_suffix('.') == Some(&self.key)
    }

    /// Whether no container has it: an idle slice, or one that is given back for nobody.
    pub(crate) fn is_nobodys(&self) -> bool {
        self.is_of(&Key::default())
    }

    /// Whether both say that they have the same place, on the same boot.
    pub(crate) fn is_at_place_of(&self, other: &Claim) -> bool {
        (&self.boot_id, &self.gpu_uuid, self.placement)
            == (&other.boot_id, &other.gpu_uuid, other.placement)
    }

    pub fn parse(name: &str) -> Option<Claim> {
        let parts: Vec<&str> = name.split('.').collect();
        let [key, lease, boot, gpu, profile, start, size, ref tail @ ..] = parts[..] else {
            return None;
        };
        let tie = match tail {
            [] => Tie::Own,
            ["adopted"] => Tie::Adopted,
            ["shared"] => Tie::Shared,
            _ => Tie::Unknown,
        };
        Some(Claim {
            key: key.to_owned(),
            lease: lease.to_owned(),
            boot_id: boot.to_owned(),
            gpu_uuid: gpu.to_owned(),
            profile_id: profile.parse().ok()?,
            placement: Placement {
                start: start.parse().ok()?,
                size: size.parse().ok()?,
            },
            tie,
        })
    }

    pub fn name(&self) -> String {
        let tail = match self.tie {
            Tie::Own | Tie::Unknown => "",
            Tie::Adopted => ".adopted",
            Tie::Shared => ".shared",
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
