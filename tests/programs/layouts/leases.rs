//! `migctl apply` of instances.

use testkit::prelude::*;

/// `migctl apply` of instances on GPU 0.
pub fn apply(world: &World, instances: &str) -> Command {
    let file = world.path("layout.json");
    let entry = format!(r#"{{"devices": [0], "mig-enabled": true, "mig-devices": {instances}}}"#);
    let text = format!(r#"{{"version": "v1", "mig-configs": {{"wanted": [{entry}]}}}}"#);
    fs::write(&file, text).unwrap();
    world.migctl(&["apply", "-f", file.to_str().unwrap()])
}
