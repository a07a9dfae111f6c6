//! Random machines, contents and configuration files.

use nvml_sim::engine::{self, Unheld};
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
            fill(machine, gpu, random);
        }
    });
    machine
}

fn fill(machine: &mut engine::Machine, gpu: u32, random: &mut Random) {
    let profiles = &machine.gpus[gpu as usize].model().profiles;
    if machine.gpus[gpu as usize].mode == Mode::Off || profiles.is_empty() {
        return;
    }
    for _ in 0..random.below(8) {
        let profile = &profiles[random.below(profiles.len() as u64) as usize];
        let Ok(gi) = machine.create_gpu_instance(gpu, profile.id, None, &Unheld) else {
            continue;
        };
        match random.below(6) {
            0 => {}
            1 | 2 => {
                for _ in 0..3 {
                    let parts = machine.gpus[gpu as usize].ci_profiles_of(&gi);
                    let part = parts[random.below(parts.len() as u64) as usize].id;
                    let _ = machine.create_compute_instance(gpu, gi.id, part, None);
                }
            }
            _ => drop(machine.create_compute_instance(gpu, gi.id, profile.full_ci, None)),
        }
    }
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
        fill(&mut wanted, gpu, random);
    }
    let entries = describing(&contents_of(&wanted), random);
    written(&entries, random)
}

/// An entry of a file.
#[derive(Clone)]
struct Entry {
    filter: Vec<String>,
    devices: Option<Vec<i64>>,
    enabled: bool,
    instances: BTreeMap<String, i64>,
}

fn describing(machine: &[Content], random: &mut Random) -> Vec<Entry> {
    let entry = |gpu: &Content, devices| Entry {
        filter: Vec::new(),
        devices,
        enabled: gpu.enabled,
        instances: gpu.instances.clone(),
    };
    let is_same = |a: &Content, b: &Content| (a.enabled, &a.instances) == (b.enabled, &b.instances);
    if machine.iter().all(|gpu| is_same(gpu, &machine[0])) && random.one_in(2) {
        return vec![entry(&machine[0], None)];
    }
    let mut entries = Vec::new();
    for (n, gpu) in machine.iter().enumerate() {
        let mut one = entry(gpu, Some(vec![n as i64]));
        let same: Vec<&Content> = machine.iter().filter(|g| g.model == gpu.model).collect();
        if random.one_in(3) {
            one.filter = vec![format!("0x{:X}", gpu.model)];
            if random.one_in(2) {
                one.filter.push("0x20F110DE".to_owned());
            }
            if same.iter().all(|other| is_same(other, gpu)) && random.one_in(2) {
                one.devices = None;
            }
        }
        entries.push(one);
    }
    entries
}

fn written(entries: &[Entry], random: &mut Random) -> String {
    let value = |entry: &Entry| {
        let mut value = json!({"mig-enabled": entry.enabled});
        value["devices"] = match &entry.devices {
            None => "all".into(),
            Some(listed) => listed.clone().into(),
        };
        match &entry.filter[..] {
            [] => {}
            [one] => value["device-filter"] = one.clone().into(),
            several => value["device-filter"] = several.into(),
        }
        if entry.enabled {
            value["mig-devices"] = json!(entry.instances);
        }
        value
    };
    let entries: Vec<_> = entries.iter().map(value).collect();
    let mut configurations = json!({"drawn": entries});
    if random.one_in(2) {
        configurations["other"] = json!([{"devices": "all", "mig-enabled": false}]);
    }
    let file = json!({"version": "v1", "mig-configs": configurations});
    match random.one_in(3) {
        true => file.to_string(),
        false => {
            let value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&file.to_string()).unwrap();
            serde_yaml_ng::to_string(&value).unwrap()
        }
    }
}
