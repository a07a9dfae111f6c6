//! The state of the machine as a configuration, in the fewest entries.

use super::content::instances_of;
use super::file::{Devices, Entry};
use super::write::Document;
use crate::error::{Error, Result};
use crate::gpu::DetailedGpu;
use crate::model::MigMode;
use std::collections::{BTreeMap, BTreeSet};

/// The name of the exported configuration, unless the caller chooses another.
pub const DEFAULT_LABEL: &str = "current";

/// Returns a file with one configuration, which describes the machine.
///
/// # Errors
/// A label that is no value of a label in Kubernetes.
pub fn export(gpus: &[DetailedGpu], label: &str) -> Result<Document> {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let is_label = is_end(label.chars().next())
        && is_end(label.chars().last())
        && label.len() <= 63
        && label.bytes().all(is_inner);
    if !is_label {
        return Err(Error::new(format!("{label:?} is no label")).hint(
            "use 1 to 63 letters, digits, ., - and _, with a letter or a digit at each end",
        ));
    }
    let entries = merge(gpus);
    Ok(Document(BTreeMap::from([(label.to_owned(), entries)])))
}

/// Puts GPUs with the same content into one entry, in the order of the first of each.
fn merge(gpus: &[DetailedGpu]) -> Vec<Entry> {
    let filter = |index: usize| format!("0x{:X}", gpus[index].device_id);
    let mut groups: Vec<(bool, BTreeMap<String, i64>, Vec<usize>)> = Vec::new();
    for (index, gpu) in gpus.iter().enumerate() {
        let is_on = gpu.gpu.mig == MigMode::Enabled;
        let there = instances_of(gpu);
        match groups.iter_mut().find(|g| (g.0, &g.1) == (is_on, &there)) {
            Some(group) => group.2.push(index),
            None => groups.push((is_on, there, vec![index])),
        }
    }
    let models: BTreeSet<String> = (0..gpus.len()).map(filter).collect();
    let is_named = models.len() > 1 && groups.len() > 1;
    let entry = |(mig_enabled, instances, here): (bool, BTreeMap<String, i64>, Vec<usize>)| {
        let filters: BTreeSet<String> = here.iter().map(|index| filter(*index)).collect();
        let of_models = (0..gpus.len()).filter(|index| filters.contains(&filter(*index)));
        let devices = match of_models.eq(here.iter().copied()) {
            true => Devices::All,
            false => Devices::Listed(here.iter().map(|index| *index as i64).collect()),
        };
        Entry {
            filters: if is_named {
                filters.into_iter().collect()
            } else {
                Vec::new()
            },
            devices,
            mig_enabled,
            instances,
        }
    };
    groups.into_iter().map(entry).collect()
}
