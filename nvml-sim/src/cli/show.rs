use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::{Failure, open};
use crate::engine::{Gpu, Machine, Mode, Placement};

#[derive(Args)]
pub struct Show {
    dir: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    pub fn run(self) -> Result<(), Failure> {
        let machine = open(&self.dir)?.load()?;
        if self.json {
            println!("{:#}", as_json(&machine));
            return Ok(());
        }
        println!("boot {} ({})", machine.boots, machine.boot_id());
        for (index, gpu) in machine.gpus.iter().enumerate() {
            print_gpu(index, gpu);
        }
        Ok(())
    }
}

/// A character a memory slice: the last digit of the instance that has it, or a dot.
fn slots(gpu: &Gpu) -> String {
    let at = |start| {
        let here = Placement { start, size: 1 };
        let mut all = gpu.gpu_instances.iter();
        let gi = all.find(|gi| gi.placement.overlaps(here));
        gi.and_then(|gi| char::from_digit(gi.id % 10, 10))
            .unwrap_or('.')
    };
    (0..gpu.model().memory_slices).map(at).collect()
}

fn print_gpu(index: usize, gpu: &Gpu) {
    let mode = |mode| if mode == Mode::On { "on" } else { "off" };
    let pending = match gpu.pending == gpu.mode {
        true => String::new(),
        false => format!(" (pending {})", mode(gpu.pending)),
    };
    let swept = if gpu.floor_swept { ", floor-swept" } else { "" };
    let lost = if gpu.lost { ", lost" } else { "" };
    let mig = match gpu.model().has_mig() {
        true => format!("MIG {}{pending} [{}]{swept}", mode(gpu.mode), slots(gpu)),
        false => "no MIG".to_owned(),
    };
    let (model, uuid, address) = (&gpu.model, &gpu.uuid, gpu.pci_address());
    println!("GPU {index}: {model} {uuid} {address}, {mig}{lost}");
    for gi in &gpu.gpu_instances {
        let Placement { start, size } = gi.placement;
        let name = &gpu.profile_of(gi).name;
        println!("  GI {:2}  {name} at {start}:{size}", gi.id);
    }
    for mig in gpu.mig_devices() {
        let Placement { start, size } = mig.ci.placement;
        let (gi, ci, name, uuid) = (mig.gi.id, mig.ci.id, mig.profile_name(), mig.uuid());
        println!("  CI {gi:2}/{ci} {name} at {start}:{size} {uuid}");
    }
}

fn as_json(machine: &Machine) -> Value {
    let gpus = (0..)
        .zip(&machine.gpus)
        .map(|(index, gpu)| gpu_json(index, gpu));
    let gpus: Vec<Value> = gpus.collect();
    json!({ "bootId": machine.boot_id(), "boots": machine.boots, "gpus": gpus })
}

fn gpu_json(index: usize, gpu: &Gpu) -> Value {
    let instances = gpu.gpu_instances.iter().map(|gi| {
        let mut devices = gpu.mig_devices();
        devices.retain(|mig| mig.gi.id == gi.id);
        let cis = devices.iter().map(|mig| {
            json!({
                "id": mig.ci.id,
                "profileId": mig.ci.profile_id,
                "profile": mig.profile_name(),
                "placement": mig.ci.placement,
                "migUUID": mig.uuid(),
            })
        });
        json!({
            "id": gi.id,
            "profileId": gi.profile_id,
            "profile": gpu.profile_of(gi).name,
            "placement": gi.placement,
            "computeInstances": cis.collect::<Vec<_>>(),
        })
    });
    json!({
        "index": index,
        "model": gpu.model,
        "name": gpu.model().product,
        "uuid": gpu.uuid,
        "minor": gpu.minor,
        "pci": gpu.pci_address(),
        "mig": gpu.mode,
        "migPending": gpu.pending,
        "floorSwept": gpu.floor_swept,
        "lost": gpu.lost,
        "health": gpu.health,
        "slots": slots(gpu),
        "gpuInstances": instances.collect::<Vec<_>>(),
    })
}
