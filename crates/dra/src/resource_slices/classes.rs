//! The DeviceClasses by which pods request devices.

use super::pool::rank;
use crate::driver::NAME as DRIVER;
use runmig_lease::model::ProfileName;
use std::fmt::Write;

/// Returns the name of a profile's class: `mig-1g.10gb.me` for `1g.10gb+me`, as NVIDIA's device plugin names it.
pub fn class_name(profile: &ProfileName) -> String {
    format!("mig-{}", profile.to_string().replace('+', "."))
}

/// Returns the resource that a pod for NVIDIA's device plugin requests.
pub fn extended_resource(profile: &ProfileName) -> String {
    format!("nvidia.com/{}", class_name(profile))
}

/// Returns the manifest of all classes: one for any slice, and one for each profile.
pub fn manifest(profiles: &[ProfileName]) -> String {
    let mut profiles: Vec<&ProfileName> = profiles.iter().collect();
    profiles.sort_by_key(|profile| rank(profile));
    profiles.dedup();
    let mut text = String::from(
        "# The DeviceClasses of runmig-dra. scripts/device-classes writes this file from the GPU models.\n",
    );
    let any = format!(
        "{} && device.attributes[\"{DRIVER}\"].type == \"mig\"",
        is_ours()
    );
    class(&mut text, "mig.runmig.dev", &any, None);
    for profile in profiles {
        let its = format!(
            "{} && device.attributes[\"{DRIVER}\"].profile == \"{profile}\"",
            is_ours()
        );
        let resource = extended_resource(profile);
        class(&mut text, &class_name(profile), &its, Some(&resource));
    }
    text
}

fn is_ours() -> String {
    format!("device.driver == \"{DRIVER}\"")
}

fn class(text: &mut String, name: &str, expression: &str, resource: Option<&str>) {
    let resource = resource.map_or_else(String::new, |resource| {
        format!("  extendedResourceName: {resource}\n")
    });
    // Writing to a text cannot fail.
    let _ = write!(
        text,
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata:\n  name: {name}\nspec:\n{resource}  \
         selectors:\n  - cel:\n      expression: '{expression}'\n"
    );
}
