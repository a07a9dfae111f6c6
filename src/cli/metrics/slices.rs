//! The families of slices: one series for each GPU instance, because a join allows no second one.

use super::facts::{Facts, OfGpu};
use super::table;
use super::text::Families;
use runmig_lease::SliceView;
use runmig_lease::store::{Entry, HolderNames};

pub fn add(families: &mut Families, facts: &Facts, entries: &[Entry]) {
    for slice in facts.inventory.slices(entries) {
        add_one(families, facts, &slice);
    }
}

fn add_one(families: &mut Families, facts: &Facts, slice: &SliceView<'_>) {
    let uuid = slice.gpu_uuid.as_str();
    let index = slice.gpu_index.to_string();
    let instance = slice
        .gpu_instance
        .map(|id| id.to_string())
        .unwrap_or_default();
    let gpu = of_gpu(facts, slice);
    let state = slice
        .state
        .or_else(|| gpu?.state.word())
        .unwrap_or_default();
    let owned = |name: Option<&str>| name.map(str::to_owned);
    let holder = |name: &dyn Fn(&HolderNames<'_>) -> Option<String>| slice.holder(name);
    families.info(
        &table::SLICE,
        &[
            uuid,
            &index,
            &instance,
            slice.kind(),
            slice.profile.as_deref().unwrap_or_default(),
            slice.mig_uuid.unwrap_or_default(),
            &slice.placement.map(|p| p.to_string()).unwrap_or_default(),
            state,
            &holder(&|names| owned(names.namespace)),
            &holder(&|names| owned(names.pod)),
            &holder(&|names| owned(names.container)),
            &holder(&|names| owned(names.claim)),
            slice.lease(),
        ],
    );
    // A GPU outside of MIG mode is one compute slice with all memory.
    let is_whole = slice.placement.is_none();
    let memory_mib = match is_whole {
        true => gpu.and_then(|gpu| gpu.total_mib),
        false => slice.size.map(|size| size.memory_mib),
    };
    let compute = match is_whole {
        true => gpu.map(|_| 1),
        false => slice.size.map(|size| u64::from(size.compute_slices)),
    };
    let key = (slice.gpu_uuid.clone(), slice.gpu_instance);
    let used = facts
        .driver
        .as_ref()
        .and_then(|d| d.used_on_slice.get(&key));
    let labels = [uuid, &index, &instance];
    families.known(
        &table::SLICE_MEMORY,
        &labels,
        memory_mib.map(|mib| mib << 20),
    );
    families.known(&table::SLICE_MEMORY_USED, &labels, used.copied());
    families.known(&table::SLICE_COMPUTE_SLICES, &labels, compute);
}

/// Returns the driver's answers about the GPU of a slice.
fn of_gpu<'a>(facts: &'a Facts, slice: &SliceView<'_>) -> Option<&'a OfGpu> {
    let gpus = facts.inventory.snapshot.gpus.iter();
    let at = gpus
        .map(|gpu| &gpu.uuid)
        .position(|uuid| uuid == slice.gpu_uuid)?;
    facts.driver.as_ref()?.gpus.get(at)
}
