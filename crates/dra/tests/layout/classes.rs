//! kubernetes/dra/classes.yaml has a class for each profile of each model.

use nvml_sim::engine::Model;
use runmig_dra::resource_slices::rank;
use runmig_lease::model::ProfileName;
use runmig_lease::programs::DRIVER;
use std::fmt::Write;
use testkit::prelude::*;

#[path = "../support/class_names.rs"]
mod class_names;
use class_names::{class_name, extended_resource};

/// Returns the manifest of all classes: one for any slice, and one for each profile.
fn manifest(profiles: &[ProfileName]) -> String {
    let mut profiles: Vec<&ProfileName> = profiles.iter().collect();
    profiles.sort_by_key(|profile| rank(profile));
    profiles.dedup();
    let mut text = String::from(
        "# The DeviceClasses of runmig-dra. scripts/device-classes writes this file from the GPU models.\n",
    );
    let with = |attribute: &str, value: &str| {
        let attribute = format!("device.attributes[\"{DRIVER}\"].{attribute}");
        format!("device.driver == \"{DRIVER}\" && {attribute} == \"{value}\"")
    };
    let any = with("type", "mig");
    class(&mut text, "mig.runmig.dev", &any, None);
    for profile in profiles {
        let its = with("profile", &profile.to_string());
        let resource = extended_resource(profile);
        class(&mut text, &class_name(profile), &its, Some(&resource));
    }
    text
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

fn profiles() -> Vec<ProfileName> {
    let all = Model::with_mig().iter().flat_map(|model| &model.profiles);
    all.map(|profile| profile.name.parse().unwrap()).collect()
}

/// `UPDATE=1` writes the file, as scripts/device-classes does.
#[test]
fn classes_follow_from_the_models() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kubernetes/dra/classes.yaml");
    let text = manifest(&profiles());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &text).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == text, "run scripts/device-classes");
}

#[test]
fn names_are_those_of_device_plugin() {
    let named = [
        ("1g.10gb", "mig-1g.10gb"),
        ("1g.10gb+me", "mig-1g.10gb.me"),
        ("1g.24gb+me.all", "mig-1g.24gb.me.all"),
        ("1g.24gb-me", "mig-1g.24gb-me"),
        ("4g.96gb+gfx", "mig-4g.96gb.gfx"),
    ];
    for (profile, name) in named {
        let profile = profile.parse().unwrap();
        assert_eq!(class_name(&profile), name);
        assert_eq!(extended_resource(&profile), format!("nvidia.com/{name}"));
    }
}

/// The newest of two classes with one extended resource wins, so no two have one.
#[test]
fn each_class_has_its_own_resource() {
    let text = manifest(&profiles());
    let profiles: BTreeSet<String> = profiles().iter().map(ProfileName::to_string).collect();
    for key in ["  name: ", "  extendedResourceName: "] {
        let values: Vec<&str> = { text.lines() }
            .filter_map(|line| line.strip_prefix(key))
            .collect();
        let different: BTreeSet<&&str> = values.iter().collect();
        assert_eq!(different.len(), values.len());
        let any = usize::from(key.contains("name:"));
        assert_eq!(values.len(), profiles.len() + any);
    }
}
