//! `migctl gpus`: in the shape of `nvidia-smi mig -lgip`, with what the ledger says beside it.

use super::output::{self, Format};
use crate::config::Config;
use crate::error::Result;
use crate::gpu::{Driver, nvml};
use crate::model::{Gpu, MigMode, Placement, Profile};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    index: u32,
    minor: u32,
    #[serde(rename = "uuid")]
    uuid: &'a str,
    name: &'a str,
    #[serde(rename = "pciBusID")]
    pci_bus_id: &'a str,
    mig_mode: &'static str,
    mig_mode_pending: Option<&'static str>,
    profiles: Vec<ProfileItem<'a>>,
    instances: Vec<InstanceItem>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProfileItem<'a> {
    name: &'a str,
    #[serde(rename = "profileID")]
    id: u32,
    instances_free: u32,
    instances_total: u32,
    memory_bytes: u64,
    p2p: bool,
    multiprocessors: u32,
    decoders: u32,
    encoders: u32,
    copy_engines: u32,
    jpegs: u32,
    ofas: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceItem {
    #[serde(rename = "gpuInstanceID")]
    id: u32,
    profile: String,
    mig_placement: Placement,
}

pub fn run(config: &Config, format: Format) -> Result<i32> {
    let driver = nvml::open(&config.driver.library)?;
    let snapshot = driver.snapshot()?;
    let mut free = Vec::new();
    for gpu in &snapshot.gpus {
        let of_gpu: std::result::Result<Vec<u32>, _> = gpu
            .profiles
            .iter()
            .map(|p| driver.free_instances(&gpu.uuid, p.id))
            .collect();
        free.push(of_gpu?);
    }
    match format {
        Format::Json => {
            let items: Vec<Item<'_>> = snapshot
                .gpus
                .iter()
                .zip(&free)
                .map(|(gpu, free)| item(gpu, free))
                .collect();
            output::json("GpuList", &items);
        }
        Format::Table => {
            for (i, (gpu, free)) in snapshot.gpus.iter().zip(&free).enumerate() {
                if i > 0 {
                    output::line("");
                }
                show(gpu, free);
            }
            if snapshot.gpus.is_empty() {
                output::line("the driver has no GPUs");
            }
        }
    }
    for (_, why) in &snapshot.unreadable {
        eprintln!("migctl: {why}");
    }
    Ok(i32::from(!snapshot.unreadable.is_empty()))
}

fn show(gpu: &Gpu, free: &[u32]) {
    let pending = match gpu.mig_pending {
        Some(mode) => format!(", {} after a reset", word(mode)),
        None => String::new(),
    };
    output::line(&format!(
        "GPU {}: {} ({}), MIG {}{pending}",
        gpu.index,
        crate::error::printable(&gpu.name),
        crate::error::printable(&gpu.uuid),
        word(gpu.mig)
    ));
    if gpu.profiles.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = gpu
        .profiles
        .iter()
        .zip(free)
        .map(|(profile, free)| row(profile, *free))
        .collect();
    output::table(
        &[
            "NAME",
            "ID",
            "FREE/TOTAL",
            "MEMORY GiB",
            "P2P",
            "SM",
            "DEC",
            "ENC",
            "CE",
            "JPEG",
            "OFA",
        ],
        &rows,
    );
}

fn row(p: &Profile, free: u32) -> Vec<String> {
    let mut row = vec![
        format!("MIG {}", p.name),
        p.id.to_string(),
        format!("{free}/{}", p.max_instances),
        format!("{:.2}", p.memory_mib as f64 / 1024.0),
        if p.p2p { "Yes" } else { "No" }.to_owned(),
    ];
    let engines = [
        p.multiprocessors,
        p.decoders,
        p.encoders,
        p.copy_engines,
        p.jpegs,
        p.ofas,
    ];
    row.extend(engines.map(|n| n.to_string()));
    row
}

fn item<'a>(gpu: &'a Gpu, free: &[u32]) -> Item<'a> {
    let profile = |id| {
        gpu.profile(id)
            .map_or_else(|| id.to_string(), |p| p.name.clone())
    };
    Item {
        index: gpu.index,
        minor: gpu.minor,
        uuid: &gpu.uuid,
        name: &gpu.name,
        pci_bus_id: &gpu.pci_bus_id,
        mig_mode: word(gpu.mig),
        mig_mode_pending: gpu.mig_pending.map(word),
        profiles: gpu
            .profiles
            .iter()
            .zip(free)
            .map(|(p, free)| ProfileItem {
                name: &p.name,
                id: p.id,
                instances_free: *free,
                instances_total: p.max_instances,
                memory_bytes: p.memory_mib << 20,
                p2p: p.p2p,
                multiprocessors: p.multiprocessors,
                decoders: p.decoders,
                encoders: p.encoders,
                copy_engines: p.copy_engines,
                jpegs: p.jpegs,
                ofas: p.ofas,
            })
            .collect(),
        instances: gpu
            .instances
            .iter()
            .map(|i| InstanceItem {
                id: i.id,
                profile: profile(i.profile_id),
                mig_placement: i.placement,
            })
            .collect(),
    }
}

fn word(mode: MigMode) -> &'static str {
    match mode {
        MigMode::Unsupported => "unsupported",
        MigMode::Disabled => "disabled",
        MigMode::Enabled => "enabled",
    }
}
