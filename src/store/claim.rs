//! What a record's name says. A name is written once and lies in the directory, not in the file: a
//! record of which every byte is lost still tells whose lease it is, which place it has, and on which
//! boot, so its slice is neither given twice nor lost for good.
//!
//! ```text
//! <key>.<lease>.<boot>.<gpu>.<profile>.<start>.<size>
//! ```

use super::record::Lease;
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
        }
    }

    pub fn parse(name: &str) -> Option<Claim> {
        let parts: Vec<&str> = name.split('.').collect();
        let [key, lease, boot, gpu, profile, start, size] = parts[..] else {
            return None;
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
        })
    }

    pub fn name(&self) -> String {
        format!(
            "{}.{}.{}.{}.{}.{}.{}",
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
