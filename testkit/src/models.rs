//! The simulated driver's GPU models as NVML describes them to the product.

use nvml_sim::engine::{GiProfile, Model};
use runmig_lease::model::{Gpu, GpuUuid, MigMode, Placement, Profile};

/// An empty GPU with MIG on.
pub fn gpu(model: &Model, index: u32) -> Gpu {
    let place = |nvml_sim::engine::Placement { start, size }| Placement { start, size };
    let profile = |p: &GiProfile| Profile {
        name: p.name.clone(),
        id: p.id,
        compute_slices: p.compute_slices,
        memory_mib: p.memory_mb,
        multiprocessors: p.sm,
        copy_engines: p.engines.copy_engines,
        decoders: p.engines.decoders,
        encoders: p.engines.encoders,
        jpegs: p.engines.jpeg,
        ofas: p.engines.ofa,
        p2p: false,
        max_instances: p.max_instances,
        placements: p.placements().map(place).collect(),
    };
    Gpu {
        index,
        minor: index,
        uuid: GpuUuid::new(format!("GPU-{index}")),
        name: model.product.clone(),
        pci_bus_id: String::new(),
        mig: MigMode::Enabled,
        mig_pending: None,
        closed: None,
        profiles: model.profiles.iter().map(profile).collect(),
        instances: Vec::new(),
    }
}
