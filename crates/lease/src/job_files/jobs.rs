//! The names and the texts of the job files, from leases.

use crate::error::printable;
use crate::store::{Container, Held, Resource};
use std::collections::{BTreeMap, BTreeSet};

/// The most bytes of a line. dcgm-exporter reads lines of 64 KiB, and a longer one fails its whole scrape.
const LONGEST_LINE: usize = 4096;

/// The text of each file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Jobs(BTreeMap<String, String>);

impl Jobs {
    pub(super) fn of<'a>(leases: impl Iterator<Item = &'a Held>) -> Jobs {
        let mut lines: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for held in leases {
            let container = held.lease.container();
            if let (Some(name), Some(container)) = (file_name(&held.instance.resource), container) {
                lines.entry(name).or_default().insert(line(container));
            }
        }
        let text = |lines: BTreeSet<String>| lines.iter().map(|line| format!("{line}\n")).collect();
        Jobs(
            lines
                .into_iter()
                .map(|(name, lines)| (name, text(lines)))
                .collect(),
        )
    }

    /// Returns the text of a file: an empty one without a lease.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns the names of the files that have a text.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.0.keys().cloned()
    }
}

/// Returns the name of the file of a slice: `GPU.GPU_I_ID`, or `GPU` for a GPU without MIG. None for a slice that is yet
/// to be made.
pub(super) fn file_name(resource: &Resource) -> Option<String> {
    let gpu = resource.gpu_index();
    match resource.mig_slice() {
        Some(slice) => slice.gpu_instance.map(|gi| format!("{gpu}.{gi}")),
        None => Some(gpu.to_string()),
    }
}

/// Returns whether dcgm-exporter reads a file of this name.
pub(super) fn is_read(name: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match name.split_once('.') {
        Some((gpu, gi)) => is_number(gpu) && is_number(gi),
        None => is_number(name),
    }
}

/// Returns `NAMESPACE/POD/CONTAINER`, or the id of a container outside of Kubernetes.
fn line(container: &Container) -> String {
    let names = (
        &container.namespace,
        &container.pod,
        &container.container_name,
    );
    let text = match names {
        (Some(namespace), Some(pod), Some(name)) => format!("{namespace}/{pod}/{name}"),
        _ => container.key.id.clone(),
    };
    let mut line = printable(&text);
    let end = (0..=line.len().min(LONGEST_LINE))
        .rev()
        .find(|at| line.is_char_boundary(*at));
    line.truncate(end.unwrap_or(0));
    line
}
