//! Layouts of an administrator, applied beside a container that keeps its slice.

use super::*;
use crate::faults::machine::install;
use nvml_sim::engine::Mode;

const FILE: &str = "layouts.json";
/// A file with the arguments of the layout that was begun.
const BEGUN: &str = "layout-begun";
/// A file with the generations of instances that an apply may destroy although nobody has them on record.
const FORGONE: &str = "forgone";

pub const ALL: &[Operation] = operations! {
    "apply", Apply: |_| () => apply;
    "apply-modes", Apply: |_| () => apply_modes;
};

/// Beside a leased slice: replaces one without compute instances, destroys an idle one, and creates one with two.
fn apply(world: &World) -> Call {
    world.create(PEER);
    let half = world.the_instance().start ^ 1;
    world.admin_forgoes(world.profile, half);
    leave_idle(world);
    let wanted = r#"{"1g.6gb": 2, "1c.2g.12gb": 2}"#;
    let text = format!(
        r#"{{"version": "v1", "mig-configs": {{"wanted": [
        {{"devices": [0], "mig-enabled": true, "mig-devices": {wanted}}}]}}}}"#
    );
    begun(world, &text, &["-c", "wanted"])
}

/// Switches MIG off on a GPU with an idle slice, and on on the other, which needs a reset on this model.
fn apply_modes(world: &World) -> Call {
    install(&world.machine(), "nvidia-smi");
    world.change(|machine, _| {
        let modes = [Mode::On, Mode::Off];
        for (gpu, mode) in machine.gpus.iter_mut().zip(modes) {
            (gpu.mode, gpu.pending) = (mode, mode);
        }
    });
    leave_idle(world);
    let text = r#"{"version": "v1", "mig-configs": {"wanted": [
        {"devices": [0], "mig-enabled": false},
        {"devices": [1], "mig-enabled": true, "mig-devices": {"1g.6gb": 1}}]}}"#;
    begun(world, text, &[])
}

fn leave_idle(world: &World) {
    world.configure("keep_idle = \"5m\"");
    world.create(ID);
    world.delete(ID);
}

fn begun(world: &World, text: &str, options: &[&str]) -> Call {
    let file = world.path(FILE);
    fs::write(&file, text).unwrap();
    let arguments = [&["apply", "-f", file.to_str().unwrap()], options].concat();
    fs::write(world.path(BEGUN), arguments.join("\n")).unwrap();
    world.migctl(&arguments).into()
}

/// After an apply that was killed or failed, the next one ends in the state that the first one wanted.
pub fn next_apply_succeeds(world: &World) -> Result<(), String> {
    let Ok(begun) = fs::read_to_string(world.path(BEGUN)) else {
        return Ok(());
    };
    let arguments: Vec<&str> = begun.lines().collect();
    let next = said(&mut world.migctl(&arguments));
    if !next.status.success() {
        return Err(format!("the next apply fails: {next:?}"));
    }
    is_in_place(world)
}

/// The layout that was begun is in place.
pub fn is_in_place(world: &World) -> Result<(), String> {
    let begun = fs::read_to_string(world.path(BEGUN)).unwrap();
    let mut arguments: Vec<&str> = begun.lines().collect();
    arguments.extend(["--dry-run", "-o", "json"]);
    let planned = world.json(&arguments);
    let mut items = planned["items"].as_array().into_iter().flatten();
    let modes_are = planned["modes"].as_array().is_some_and(Vec::is_empty);
    match modes_are && items.all(|item| item["change"] == "keep") {
        true => Ok(()),
        false => Err(format!("the layout is not in place: {planned}")),
    }
}

/// An empty layout ends what the layouts made.
pub fn layout_is_removed(world: &World) {
    if world.path(BEGUN).exists() {
        let file = world.path(FILE);
        let text = r#"{"version": "v1", "mig-configs": {"empty": [
            {"devices": "all", "mig-enabled": true, "mig-devices": {}}]}}"#;
        fs::write(&file, text).unwrap();
        said(&mut world.migctl(&["apply", "-f", file.to_str().unwrap()])).ok();
        for file in [BEGUN, FORGONE] {
            let _ = fs::remove_file(world.path(file));
        }
    }
}

impl World {
    /// An administrator's instance on GPU 0 without a compute instance, which an apply may have.
    fn admin_forgoes(&self, profile: &str, start: u32) {
        let gi = self.admin_creates(0, profile, start, false);
        let made = self.instances().into_iter().find(|i| i.gi == gi).unwrap();
        fs::write(self.path(FORGONE), made.generation.to_string()).unwrap();
    }

    /// Whether the administrator has forgone an instance.
    pub fn is_forgone(&self, generation: u64) -> bool {
        let forgone = fs::read_to_string(self.path(FORGONE)).unwrap_or_default();
        forgone == generation.to_string()
    }
}
