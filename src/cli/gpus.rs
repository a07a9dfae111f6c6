//! `migctl gpus`: a table in the form of `nvidia-smi mig -lgip`, and above it the instances with their
//! owners.

use super::draw::{self, mode_word};
use super::driver::Driver;
use super::json::{ClosedItem, GpuItem, InstanceItem, Items, MemorySlice, ProfileItem};
use super::mig_on;
use super::output::{self, Format};
use super::world;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::gpu::Queries;
use runmig_lease::model::{Closed, Gpu, MigMode, Profile};
use runmig_lease::placement::{self, GpuUse};
use runmig_lease::policy::GpuName;
use runmig_lease::refusal;
use runmig_lease::{GpuState, Inventory};

#[derive(clap::Args)]
pub struct Options {
    /// Only this GPU, by its index or its UUID
    #[arg(long)]
    gpu: Option<GpuName>,
}

pub fn run(config: &Config, format: Format, options: &Options) -> Result<i32> {
    let (driver, world) = world::look(config, matches!(format, Format::Table))?;
    let is_wanted = |gpu: &&Gpu| {
        { options.gpu.as_ref() }.is_none_or(|name| name.names(gpu.index, gpu.uuid.as_str()))
    };
    let gpus: Vec<&Gpu> = world.snapshot.gpus.iter().filter(is_wanted).collect();
    if let (true, Some(name)) = (gpus.is_empty(), &options.gpu) {
        return Err(world::no_gpu(name, &world.snapshot).hint("find its index with migctl gpus"));
    }
    let ask = |gpu: &&Gpu| Free::ask(&driver, gpu, &world);
    let free: Vec<Free> = gpus.iter().map(ask).collect();
    match format {
        Format::Json => {
            let items = gpus.iter().zip(&free);
            let items: Vec<GpuItem<'_>> =
                items.map(|(gpu, free)| item(&world, gpu, free)).collect();
            output::json("GpuList", &Items { items: &items });
        }
        Format::Table => {
            for (i, (gpu, free)) in gpus.iter().zip(&free).enumerate() {
                if i > 0 {
                    output::line("");
                }
                show(&world, gpu, free);
            }
            if gpus.is_empty() && world.snapshot.unreadable.is_empty() {
                output::line("the driver has no GPUs");
            }
        }
    }
    let errors = free.iter().filter_map(|f| f.error.as_deref());
    let complaints = errors.map(output::eprint).count();
    Ok(i32::from(!world::tell_unread(&world) || complaints > 0))
}

/// Answers of the driver about a GPU, beyond the snapshot.
struct Free {
    /// The number of instances that the driver would still make, for each profile.
    instances: Vec<Option<u32>>,
    /// The profiles that the GPU would offer, where its MIG mode is off.
    offered: Vec<Profile>,
    /// The use outside of slices.
    state: GpuState,
    /// The first call that failed. It hides neither this GPU nor another.
    error: Option<String>,
}

impl Free {
    fn ask(driver: &Driver, gpu: &Gpu, world: &Inventory) -> Free {
        let state = world.use_of(driver, gpu);
        let mut errors = Vec::from_iter(state.error.clone());
        let mut offered = Vec::new();
        if gpu.mig == MigMode::Disabled {
            match driver.offered_profiles(&gpu.uuid) {
                Ok(profiles) => offered = profiles,
                Err(e) => errors.push(Error::from(e).line()),
            }
        }
        Free {
            instances: world::free_instances(driver, gpu, |why| errors.push(why)),
            offered,
            state,
            error: errors.into_iter().next(),
        }
    }
}

fn slices(world: &Inventory, gpu: &Gpu) -> Vec<MemorySlice> {
    let room = world.room(gpu);
    let of = |n: usize| {
        let one = &room.occupants[n];
        let entries = world.at(gpu, one.at);
        MemorySlice {
            state: world.state_at(gpu, one.at),
            profile: Some(room.name(one.profile_id)),
            leases: entries.iter().map(|e| e.id().to_owned()).collect(),
        }
    };
    let free = MemorySlice {
        state: "free",
        profile: None,
        leases: Vec::new(),
    };
    let slots = room.by_slice().into_iter();
    slots
        .map(|slot| slot.map_or_else(|| free.clone(), of))
        .collect()
}

fn show(world: &Inventory, gpu: &Gpu, free: &Free) {
    let drawn = draw::whole(world, gpu, &free.state);
    drawn.iter().for_each(|line| output::line(line));
    if !gpu.profiles.is_empty() {
        let profiles = gpu.profiles.iter().zip(&free.instances);
        table(profiles.map(|(profile, free)| row(profile, *free)));
    }
    if !free.offered.is_empty() {
        let how = mig_on::command(&[gpu]);
        output::line(&format!("with MIG on ({how}) it would offer:"));
        table(free.offered.iter().map(|profile| row(profile, Some(0))));
    }
}

fn table(rows: impl Iterator<Item = Vec<String>>) {
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
        &rows.collect::<Vec<_>>(),
    );
}

fn row(p: &Profile, free: Option<u32>) -> Vec<String> {
    let free = free.map_or_else(|| "?".to_owned(), |free| free.to_string());
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

fn item<'a>(world: &Inventory, gpu: &'a Gpu, free: &'a Free) -> GpuItem<'a> {
    let room = world.room(gpu);
    let profiles = gpu.profiles.iter().zip(&free.instances);
    let with_mig_on = free.offered.iter();
    let instances = gpu.instances.iter();
    GpuItem {
        index: gpu.index,
        minor: gpu.minor,
        uuid: gpu.uuid.as_str(),
        name: &gpu.name,
        pci_bus_id: &gpu.pci_bus_id,
        mig_mode: mode_word(gpu.mig),
        mig_mode_pending: gpu.mig_pending.map(mode_word),
        profiles: profiles.map(|(p, free)| profile_item(p, *free)).collect(),
        profiles_with_mig_on: with_mig_on.map(|p| profile_item(p, Some(0))).collect(),
        instances: instances.map(|i| InstanceItem::new(gpu, i)).collect(),
        free_slices: room.free_slices(),
        fragmentation_percent: match gpu.mig {
            MigMode::Enabled => placement::fragmentation(&room),
            _ => None,
        },
        r#use: use_word(&free.state.usage),
        use_reason: refusal::gpu_use(&free.state.usage),
        memory_bytes: free.state.memory_mib.map(|mib| mib << 20),
        booked_bytes: free.state.booked_mib() << 20,
        foreign_bytes: free.state.foreign_mib.map(|mib| mib << 20),
        closed: gpu.shut().map(|shut| ClosedItem {
            reasons: gpu.closed.iter().flat_map(Closed::reasons).collect(),
            shut,
        }),
        error: free.error.clone(),
        slices: slices(world, gpu),
    }
}

fn profile_item(p: &Profile, free: Option<u32>) -> ProfileItem<'_> {
    ProfileItem {
        name: &p.name,
        id: p.id,
        instances_free: free,
        instances_total: p.max_instances,
        memory_bytes: p.memory_mib << 20,
        p2p: p.p2p,
        multiprocessors: p.multiprocessors,
        decoders: p.decoders,
        encoders: p.encoders,
        copy_engines: p.copy_engines,
        jpegs: p.jpegs,
        ofas: p.ofas,
    }
}

/// Returns the use of a GPU as programs read it.
pub fn use_word(usage: &GpuUse) -> &'static str {
    match usage {
        GpuUse::Mig { .. } => "mig",
        GpuUse::Free => "free",
        GpuUse::Exclusive { .. } => "exclusive",
        GpuUse::Shared { .. } => "shared",
        GpuUse::Foreign { .. } => "foreign",
        GpuUse::Prohibited => "unusable",
        GpuUse::Unknown { .. } => "unknown",
    }
}
