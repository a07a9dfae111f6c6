use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::{Failure, open};
use crate::engine::{Gpu, Machine, Mode};

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

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "off",
        Mode::On => "on",
    }
}

/// A character a memory slice: the last digit of the instance that has it, or a dot.
fn slots(gpu: &Gpu) -> String {
    let at = |slice| {
        let gi = gpu
            .gpu_instances
            .iter()
            .find(|gi| gi.placement.start <= slice && slice < gi.placement.end());
        gi.and_then(|gi| char::from_digit(gi.id % 10, 10))
            .unwrap_or('.')
    };
    (0..gpu.model().memory_slices).map(at).collect()
}

fn print_gpu(index: usize, gpu: &Gpu) {
    let pending = if gpu.pending == gpu.mode {
        String::new()
    } else {
        format!(" (pending {})", mode(gpu.pending))
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
        let name = &gpu.profile_of(gi).name;
        println!(
            "  GI {:2}  {name} at {}:{}",
            gi.id, gi.placement.start, gi.placement.size
        );
    }
    for mig in gpu.mig_devices() {
        let at = mig.ci.placement;
        println!(
            "  CI {:2}/{} {} at {}:{} {}",
            mig.gi.id,
            mig.ci.id,
            mig.profile_name(),
            at.start,
            at.size,
            mig.uuid()
        );
    }
}

fn as_json(machine: &Machine) -> Value {
    let gpus: Vec<Value> = machine
        .gpus
        .iter()
        .enumerate()
        .map(|(i, gpu)| gpu_json(i, gpu))
        .collect();
    json!({ "bootId": machine.boot_id(), "boots": machine.boots, "gpus": gpus })
}

fn gpu_json(index: usize, gpu: &Gpu) -> Value {
    let instances = gpu.gpu_instances.iter().map(|gi| {
        let cis = gpu
            .mig_devices()
            .into_iter()
            .filter(|mig| mig.gi.id == gi.id)
            .map(|mig| {
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
        "mig": mode(gpu.mode),
        "migPending": mode(gpu.pending),
        "floorSwept": gpu.floor_swept,
        "lost": gpu.lost,
        "health": gpu.health,
        "slots": slots(gpu),
        "gpuInstances": instances.collect::<Vec<_>>(),
    })
}
