//! kubernetes/dra/classes.yaml has a class for each profile of each model.

use nvml_sim::engine::Model;
use runmig_dra::resource_slices::{class_name, extended_resource, manifest};
use runmig_lease::model::ProfileName;
use testkit::prelude::*;

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
        let values: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix(key))
            .collect();
        let different: BTreeSet<&&str> = values.iter().collect();
        assert_eq!(different.len(), values.len());
        let any = usize::from(key.contains("name:"));
        assert_eq!(values.len(), profiles.len() + any);
    }
}
