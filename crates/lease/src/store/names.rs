//! The names of records. runmig writes a name once, in the directory and not in the file. So a record with
//! every byte lost still tells its lease, instance, place and boot. runmig neither gives its slice twice nor
//! loses it.
//!
//! ```text
//! leases/<key>.<lease>.<boot>.<instance>
//! leases/<key>.<lease>.<boot>.<instance>.share.<booked MiB>
//! leases/<key>.<lease>.<boot>.<instance>.claim
//! instances/<instance>.<boot>.<gpu>.mig.<profile>.<start>.<size>
//! instances/<instance>.<boot>.<gpu>.mig.<profile>.<start>.<size>.adopted
//! instances/<instance>.<boot>.<gpu>.gpu
//! ```
//!
//! Any other name is foreign. runmig names such a file and leaves it alone.

use super::holder::Key;
use super::instance::{Instance, Origin};
use super::lease::Lease;
use super::resource::Resource;
use crate::model::{BootId, GpuUuid, InstanceId, LeaseId, Placement};

/// The name of a lease's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// The hash of the holder's key: `Key::prefix` without its dot.
    pub key: String,
    /// The id of the lease.
    pub lease: LeaseId,
    /// The boot of the lease.
    pub boot_id: BootId,
    /// The id of the instance.
    pub instance: InstanceId,
    /// The memory that a share books, in MiB. None for another portion.
    pub booked_mib: Option<u64>,
    /// Whether a claim has the lease.
    pub is_claim: bool,
}

/// The name of an instance's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceName {
    /// The id of the instance.
    pub instance: InstanceId,
    /// The kind of the resource.
    pub kind: Kind,
    /// Its place.
    pub place: Place,
    /// Its maker.
    pub origin: Origin,
}

/// The kind of a resource, as a name tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A MIG slice.
    Mig,
    /// A whole GPU.
    Gpu,
}

/// A place on a GPU in one boot, as a name tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The boot of the instance.
    pub boot_id: BootId,
    /// The UUID of the GPU.
    pub gpu_uuid: GpuUuid,
    /// The id of the profile.
    pub profile_id: u32,
    /// The memory slices.
    pub placement: Placement,
}

/// The memory slices of the largest GPU, for what takes all of its GPU.
pub(crate) const WHOLE_GPU: Placement = Placement { start: 0, size: 8 };

impl LeaseName {
    /// Returns the name of a lease's record.
    pub fn of(lease: &Lease) -> LeaseName {
        LeaseName {
            key: lease.holder.prefix().trim_end_matches('.').to_owned(),
            lease: LeaseId::new(plain(lease.id.as_str())),
            boot_id: BootId::new(plain(lease.boot_id.as_str())),
            instance: InstanceId::new(plain(lease.instance.as_str())),
            booked_mib: lease.share().map(|s| s.booked_mib),
            is_claim: lease.claim().is_some(),
        }
    }

    /// Parses the name of a file. Returns none if it is not the name of a lease.
    pub fn parse(name: &str) -> Option<LeaseName> {
        let parts: Vec<&str> = name.split('.').collect();
        let [key, lease, boot, instance, ref tail @ ..] = parts[..] else {
            return None;
        };
        let (booked_mib, is_claim) = match tail {
            [] => (None, false),
            ["share", text] => (Some(mib(text)?), false),
            ["claim"] => (None, true),
            _ => return None,
        };
        Some(LeaseName {
            key: key.to_owned(),
            lease: LeaseId::new(lease),
            boot_id: BootId::new(boot),
            instance: InstanceId::new(instance),
            booked_mib,
            is_claim,
        })
    }

    /// Returns the name of the file.
    pub fn name(&self) -> String {
        let (key, lease) = (&self.key, &self.lease);
        let tail = match (self.booked_mib, self.is_claim) {
            (Some(mib), _) => format!(".share.{mib}"),
            (None, true) => ".claim".to_owned(),
            (None, false) => String::new(),
        };
        format!("{key}.{lease}.{}.{}{tail}", self.boot_id, self.instance)
    }
}

impl Kind {
    /// Returns the kind of a resource.
    pub(crate) fn of(resource: &Resource) -> Kind {
        match resource {
            Resource::Mig(_) => Kind::Mig,
            Resource::Gpu(_) => Kind::Gpu,
        }
    }
}

impl InstanceName {
    /// Returns the name of an instance's record.
    pub fn of(instance: &Instance) -> InstanceName {
        let (profile_id, placement) = match &instance.resource {
            Resource::Mig(slice) => (slice.profile_id, slice.placement),
            _ => (0, WHOLE_GPU),
        };
        InstanceName {
            instance: InstanceId::new(plain(instance.id.as_str())),
            kind: Kind::of(&instance.resource),
            place: Place {
                boot_id: BootId::new(plain(instance.boot_id.as_str())),
                gpu_uuid: GpuUuid::new(plain(instance.resource.gpu_uuid().as_str())),
                profile_id,
                placement,
            },
            origin: instance.origin,
        }
    }

    /// Parses the name of a file. Returns none if it is not the name of an instance.
    pub fn parse(name: &str) -> Option<InstanceName> {
        let parts: Vec<&str> = name.split('.').collect();
        let [instance, boot, gpu, kind, ref rest @ ..] = parts[..] else {
            return None;
        };
        let on_whole_gpu = || Place {
            boot_id: BootId::new(boot),
            gpu_uuid: GpuUuid::new(gpu),
            profile_id: 0,
            placement: WHOLE_GPU,
        };
        let adopted = |name| InstanceName {
            origin: Origin::Administrator,
            ..name
        };
        let own = |kind, place| InstanceName {
            instance: InstanceId::new(instance),
            kind,
            place,
            origin: Origin::Ours,
        };
        Some(match (kind, rest) {
            ("mig", [profile, start, size, tail @ ..]) => {
                let slice = own(Kind::Mig, Place::parse(boot, gpu, [profile, start, size])?);
                match tail {
                    [] => slice,
                    ["adopted"] => adopted(slice),
                    _ => return None,
                }
            }
            ("gpu", []) => own(Kind::Gpu, on_whole_gpu()),
            ("gpu", ["adopted"]) => adopted(own(Kind::Gpu, on_whole_gpu())),
            _ => return None,
        })
    }

    /// Returns the name of the file.
    pub fn name(&self) -> String {
        let tail = match self.origin {
            Origin::Administrator => ".adopted",
            Origin::Ours => "",
        };
        let place = &self.place;
        let (boot, gpu) = (&place.boot_id, &place.gpu_uuid);
        let kind = match self.kind {
            Kind::Mig => {
                let (profile, at) = (place.profile_id, place.placement);
                format!("mig.{profile}.{}.{}", at.start, at.size)
            }
            Kind::Gpu => "gpu".to_owned(),
        };
        format!("{}.{boot}.{gpu}.{kind}{tail}", self.instance)
    }
}

impl Place {
    fn parse(boot: &str, gpu: &str, [profile, start, size]: [&str; 3]) -> Option<Place> {
        Some(Place {
            boot_id: BootId::new(boot),
            gpu_uuid: GpuUuid::new(gpu),
            profile_id: profile.parse().ok()?,
            placement: Placement {
                start: start.parse().ok()?,
                size: size.parse().ok()?,
            },
        })
    }

    /// Returns whether both name memory slices of one GPU, in the same boot, that overlap.
    pub(crate) fn overlaps(&self, other: &Place) -> bool {
        (&self.boot_id, &self.gpu_uuid) == (&other.boot_id, &other.gpu_uuid)
            && self.placement.overlaps(other.placement)
    }
}

/// Returns whether the first part of a name is that of a container's records.
pub(crate) fn is_of(part: &str, key: &Key) -> bool {
    key.prefix().strip_suffix('.') == Some(part)
}

/// Returns an amount of memory, in the one way in which a name writes it.
fn mib(text: &str) -> Option<u64> {
    { text.parse().ok() }.filter(|n: &u64| n.to_string() == *text)
}

fn plain(text: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    text.chars().filter(fits).collect()
}
