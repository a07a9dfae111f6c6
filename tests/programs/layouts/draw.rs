//! Random machines, contents and configuration files.

use nvml_sim::engine;
use testkit::filling::fill;
use testkit::prelude::*;

const MODELS: [&str; 5] = ["A30", "A100-80GB", "A100-80GB", "H100-80GB", "T4"];

/// A GPU as a layout describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    model: u32,
    enabled: bool,
    instances: BTreeMap<String, i64>,
}

/// Returns a machine with random modes and instances.
pub fn machine(random: &mut Random) -> Machine {
    let count = 1 + random.below(4);
    let same = random.one_in(3).then(|| random.of(&MODELS));
    let models = (0..count).map(|_| same.unwrap_or_else(|| random.of(&MODELS)));
    let arguments: Vec<&str> = models.flat_map(|model| ["--gpu", model]).collect();
    let machine = Machine::with(&arguments);
    machine.change(|machine| {
        for gpu in 0..machine.gpus.len() as u32 {
            if random.one_in(4) {
                machine.gpus[gpu as usize].mode = Mode::Off;
            }
            fill(machine, gpu, random, false);
        }
    });
    machine
}

/// Returns what a layout says of a machine, by the simulation's own words.
pub fn contents(machine: &Machine) -> Vec<Content> {
    contents_of(&machine.state())
}

fn contents_of(machine: &engine::Machine) -> Vec<Content> {
    let content = |gpu: &engine::Gpu| {
        let mut instances = BTreeMap::new();
        for gi in &gpu.gpu_instances {
            let profile = gpu.profile_of(gi);
            for ci in &gi.compute_instances {
                let slices = gpu.ci_profile_of(gi, ci.profile_id).unwrap().slices;
                let name = match slices == profile.compute_slices {
                    true => profile.name.clone(),
                    false => format!("{slices}c.{}", profile.name),
                };
                *instances.entry(name).or_default() += 1;
            }
        }
        Content {
            model: gpu.model().pci_device_id(),
            enabled: gpu.mode == Mode::On,
            instances,
        }
    };
    machine.gpus.iter().map(content).collect()
}

/// Returns another machine in the same state.
pub fn twin(machine: &Machine) -> Machine {
    let state = machine.state();
    let count = state.gpus.len().to_string();
    let twin = Machine::with(&["--gpu", "A30", "--count", &count]);
    twin.change(|twin| twin.clone_from(&state));
    twin
}

/// Draws a file with other instances for the GPUs of a machine, some of them in the other mode.
pub fn target(machine: &Machine, random: &mut Random) -> String {
    let mut wanted = engine::Machine::clone(&machine.state());
    for gpu in 0..wanted.gpus.len() as u32 {
        // Sometimes the wanted ones are near those that are there.
        let switches = wanted.gpus[gpu as usize].model().has_mig() && random.one_in(5);
        let there = &mut wanted.gpus[gpu as usize];
        if switches {
            there.mode = match there.mode {
                Mode::On => Mode::Off,
                Mode::Off => Mode::On,
            };
        }
        if switches || random.one_in(2) {
            there.gpu_instances.clear();
        }
        fill(&mut wanted, gpu, random, false);
    }
    let entries = describing(&contents_of(&wanted), random);
    written(&entries, random)
}

/// Returns entries that describe a machine.
fn describing(machine: &[Content], random: &mut Random) -> Vec<Value> {
    let entry = |gpu: &Content| match gpu.enabled {
        true => json!({"devices": "all", "mig-enabled": true, "mig-devices": gpu.instances}),
        false => json!({"devices": "all", "mig-enabled": false}),
    };
    let is_same = |a: &Content, b: &Content| (a.enabled, &a.instances) == (b.enabled, &b.instances);
    if machine.iter().all(|gpu| is_same(gpu, &machine[0])) && random.one_in(2) {
        return vec![entry(&machine[0])];
    }
    let mut entries = Vec::new();
    for (n, gpu) in machine.iter().enumerate() {
        let mut one = entry(gpu);
        let mut same = machine.iter().filter(|other| other.model == gpu.model);
        let is_only_one = same.all(|other| is_same(other, gpu));
        let is_filtered = random.one_in(3);
        if is_filtered {
            let model = format!("0x{:X}", gpu.model);
            one["device-filter"] = match random.one_in(2) {
                true => json!([model, "0x20F110DE"]),
                false => json!(model),
            };
        }
        if !(is_filtered && is_only_one && random.one_in(2)) {
            one["devices"] = json!([n]);
        }
        entries.push(one);
    }
    entries
}

fn written(entries: &[Value], random: &mut Random) -> String {
    let mut configurations = json!({"drawn": entries});
    if random.one_in(2) {
        configurations["other"] = json!([{"devices": "all", "mig-enabled": false}]);
    }
    let file = json!({"version": "v1", "mig-configs": configurations});
    match random.one_in(3) {
        true => file.to_string(),
        false => serde_yaml_ng::to_string(&file).unwrap(),
    }
}
