//! The families of GPUs, from the driver's answers and the ledger.

use super::facts::{Facts, OfGpu};
use super::table;
use super::text::Families;
use crate::cli::draw::mode_word;
use crate::cli::gpus::use_word;
use runmig_lease::model::{Closed, Gpu, MigMode};
use runmig_lease::{GpuParts, placement};

/// Adds the families of GPUs. Without the driver there are none.
pub fn add(families: &mut Families, facts: &Facts) {
    let answers = facts.driver.iter().flat_map(|driver| &driver.gpus);
    for (gpu, of) in facts.inventory.snapshot.gpus.iter().zip(answers) {
        let (uuid, index) = (gpu.uuid.as_str(), gpu.index.to_string());
        families.info(
            &table::GPU,
            &[
                uuid,
                &index,
                &gpu.name,
                &format!("nvidia{index}"),
                &gpu.pci_bus_id,
                mode_word(gpu.mig),
                gpu.mig_pending.map(mode_word).unwrap_or_default(),
                use_word(&of.state.usage),
            ],
        );
        for reason in gpu.closed.iter().flat_map(Closed::reasons) {
            families.known(&table::GPU_CLOSED, &[uuid, &index, &reason], Some(1));
        }
        for (profile, free) in gpu.profiles.iter().zip(&of.free) {
            let labels = [uuid, &index, &profile.name];
            families.known(&table::GPU_PROFILE_FREE, &labels, free.map(u64::from));
            let max = u64::from(profile.max_instances);
            families.known(&table::GPU_PROFILE_MAX, &labels, Some(max));
        }
        if facts.inventory.unread.is_some() {
            continue;
        }
        parts(families, facts, gpu, of);
        let room = facts.inventory.room(gpu);
        if gpu.mig == MigMode::Enabled
            && let Some(percent) = placement::fragmentation(&room)
        {
            let ratio = f64::from(percent) / 100.0;
            families.add(&table::GPU_FRAGMENTATION, &[uuid, &index], ratio);
        }
    }
}

fn parts(families: &mut Families, facts: &Facts, gpu: &Gpu, of: &OfGpu) {
    let (uuid, index) = (gpu.uuid.as_str(), gpu.index.to_string());
    let parts = facts.inventory.parts(gpu, &of.state, of.total_mib);
    for (family, amounts) in [
        (&table::GPU_MEMORY, parts.memory_bytes),
        (&table::GPU_MEMORY_SLICES, Some(parts.memory_slices)),
        (&table::GPU_COMPUTE_SLICES, parts.compute_slices),
    ] {
        for (state, amount) in GpuParts::STATES.iter().zip(amounts.into_iter().flatten()) {
            families.known(family, &[uuid, &index, state], Some(amount));
        }
    }
}
