//! The names of the DeviceClasses by which pods request devices.

use runmig_lease::model::ProfileName;

/// Returns the name of a profile's class: `mig-1g.10gb.me` for `1g.10gb+me`, as NVIDIA's device plugin names it.
pub fn class_name(profile: &ProfileName) -> String {
    format!("mig-{}", profile.to_string().replace('+', "."))
}

/// Returns the resource that a pod for NVIDIA's device plugin requests.
pub fn extended_resource(profile: &ProfileName) -> String {
    format!("nvidia.com/{}", class_name(profile))
}
