//! MIG: the mode of each GPU, and instances that differ from the records.

use super::check::Check;
use super::finding::Finding;
use super::host::{Host, Seen};
use runmig_lease::files;
use runmig_lease::model::{Gpu, MigMode};
use runmig_lease::store::{Held, Instance, InstanceState};
use std::path::Path;

const MAX_PARAMETER: u64 = 64;

pub const CHECKS: &[Check] = &[
    Check::new(
        "mig.mode",
        "no MIG mode waits for a reset",
        "nvidia-smi --gpu-reset",
    ),
    Check::new(
        "mig.obstacles",
        "nothing stands in the way of a change of the MIG mode",
        "end the display, then modprobe -r nvidia_drm",
    ),
    Check::new(
        "mig.foreign",
        "runmig made every GPU instance",
        "destroy the instance, or set adopt",
    ),
    Check::new(
        "mig.empty",
        "every GPU instance has a compute instance",
        "nvidia-smi mig -dgi, or migctl gc",
    ),
    Check::new(
        "mig.missing",
        "the driver has every slice on record",
        "end the container, then migctl release",
    ),
    Check::new(
        "mig.quarantined",
        "the driver destroyed every released slice",
        "end the processes that hold it, then migctl gc",
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    let seen = match host.seen() {
        Ok(seen) => seen,
        Err(why) => return Finding::skip_all(CHECKS, why),
    };
    let gpus = &seen.inventory.snapshot.gpus;
    let mut findings: Vec<Finding> = gpus.iter().map(mode).collect();
    if gpus.is_empty() {
        findings.push(Finding::skip("mig.mode", "no GPU answers"));
    }
    findings.extend(obstacles(&host.driver_root(), gpus));
    let well = |id, found: Vec<Finding>, text: &str| match found.is_empty() {
        true => vec![Finding::ok(id, text)],
        false => found,
    };
    findings.extend(well(
        "mig.foreign",
        foreign(seen),
        "runmig made every GPU instance",
    ));
    findings.extend(well(
        "mig.empty",
        empty(seen),
        "every GPU instance has a compute instance",
    ));
    if seen.inventory.is_blind() {
        let why = "the ledger cannot be read, see state.records";
        findings.extend(Finding::skip_all(&CHECKS[4..], why));
        return findings;
    }
    findings.extend(well(
        "mig.missing",
        missing(seen),
        "the driver has every slice on record",
    ));
    findings.extend(well(
        "mig.quarantined",
        quarantined(seen),
        "the driver destroyed every released slice",
    ));
    findings
}

fn mode(gpu: &Gpu) -> Finding {
    const ID: &str = "mig.mode";
    let name = format!("GPU {} ({})", gpu.index, gpu.name);
    if gpu.mig_pending.is_some() {
        return Finding::warn(
            ID,
            format!("the MIG mode of {name} changes at its next reset"),
            format!("nvidia-smi --gpu-reset -i {}", gpu.index),
        );
    }
    match gpu.mig {
        MigMode::Enabled => Finding::ok(ID, format!("{name} is in MIG mode")),
        MigMode::Disabled => Finding::ok(
            ID,
            format!(
                "{name} is not in MIG mode, so it gives shares and whole GPUs; for slices: nvidia-smi -i {} -mig 1",
                gpu.index
            ),
        ),
        MigMode::Unsupported => Finding::ok(
            ID,
            format!("{name} has no MIG, so it gives shares and whole GPUs"),
        ),
    }
}

/// Instances that an administrator or another tool made. An empty one has a finding of its own.
fn foreign(seen: &Seen) -> Vec<Finding> {
    let inventory = &seen.inventory;
    let mut findings = Vec::new();
    for gpu in &inventory.snapshot.gpus {
        let foreign = gpu.instances.iter().filter(|i| {
            let is_empty = seen.empty.contains(&(gpu.index, i.id));
            inventory.at(gpu, i.placement).is_empty()
                && !inventory.is_damaged(gpu, i.placement)
                && !is_empty
        });
        findings.extend(foreign.map(|i| {
            Finding::warn(
                "mig.foreign",
                format!("runmig did not make GPU instance {} at {} on GPU {}, and leaves its place alone", i.id, i.placement, gpu.index),
                format!("nvidia-smi mig -i {} -gi {} -dci && nvidia-smi mig -i {} -gi {} -dgi, or set adopt = true", gpu.index, i.id, gpu.index, i.id),
            )
        }));
    }
    findings
}

/// GPU instances without a compute instance. An instance at work has none for a moment, and a quarantined one for longer.
fn empty(seen: &Seen) -> Vec<Finding> {
    let inventory = &seen.inventory;
    let is_at_work = |(index, gi): &(u32, u32)| {
        let gpus = inventory.snapshot.gpus.iter();
        let mut places = gpus
            .filter(|gpu| gpu.index == *index)
            .flat_map(|gpu| gpu.instances.iter().map(move |i| (gpu, i)))
            .filter(|(_, i)| i.id == *gi);
        places.any(|(gpu, i)| {
            let entries = inventory.at(gpu, i.placement);
            let mut states = entries.iter().map(|entry| &entry.instance().state);
            states.any(|state| *state != InstanceState::Ready)
        })
    };
    let one = |(gpu, gi): &(u32, u32)| {
        Finding::warn(
            "mig.empty",
            format!(
                "GPU instance {gi} on GPU {gpu} has no compute instance, so no container can use it"
            ),
            format!("nvidia-smi mig -i {gpu} -gi {gi} -dgi, or migctl gc if runmig made it"),
        )
    };
    let empty = seen.empty.iter().filter(|at| !is_at_work(at));
    empty.map(one).collect()
}

/// Records whose instance the driver does not have.
fn missing(seen: &Seen) -> Vec<Finding> {
    let inventory = &seen.inventory;
    let one = |held: &Held| {
        let slice = held.instance.resource.mig_slice()?;
        let gpu = { inventory.snapshot.gpus.iter() }.find(|gpu| gpu.uuid == slice.gpu_uuid)?;
        let is_there = gpu.instances.iter().any(|i| i.placement == slice.placement);
        if held.instance.state != InstanceState::Ready || is_there {
            return None;
        }
        Some(Finding::fail(
            "mig.missing",
            format!(
                "the driver does not have {}, which is on record for {}",
                held.instance.resource,
                held.lease.holder.title()
            ),
            format!(
                "end its container, then migctl release {}",
                held.lease.id.as_str()
            ),
        ))
    };
    inventory.leases.iter().filter_map(one).collect()
}

/// Instances that the driver does not destroy.
fn quarantined(seen: &Seen) -> Vec<Finding> {
    let leased = seen.inventory.leases.iter().map(|held| &held.instance);
    let one = |instance: &Instance| match &instance.state {
        InstanceState::Quarantined(attempt) => Some(Finding::fail(
            "mig.quarantined",
            format!(
                "the driver did not destroy {}: {}",
                instance.resource, attempt.error
            ),
            "migctl list names the processes that hold it; end them, then migctl gc",
        )),
        _ => None,
    };
    leased
        .chain(&seen.inventory.unleased)
        .filter_map(one)
        .collect()
}

/// A GPU in use by a display, or by nvidia_drm's console, changes its MIG mode only after a reset. Facts of the kernel
/// tell that. They matter where a GPU is not in MIG mode yet.
fn obstacles(root: &Path, gpus: &[Gpu]) -> Vec<Finding> {
    const ID: &str = "mig.obstacles";
    let may_change = |gpu: &&Gpu| gpu.mig == MigMode::Disabled || gpu.mig_pending.is_some();
    let changing: Vec<&Gpu> = gpus.iter().filter(may_change).collect();
    if changing.is_empty() {
        return vec![Finding::ok(ID, "no MIG mode is left to change")];
    }
    let mut found = Vec::new();
    let drm = root.join("sys/module/nvidia_drm");
    let modeset = files::read_text(&drm.join("parameters/modeset"), MAX_PARAMETER);
    if modeset.is_ok_and(|text| text.trim() == "Y") {
        found.push(Finding::warn(
            ID,
            "nvidia_drm is loaded with modeset, so it keeps GPUs open and a change of their MIG mode stays pending",
            "modprobe -r nvidia_drm, and change the mode before it is loaded again",
        ));
    }
    for gpu in changing {
        if let Some(connector) = display(root, gpu) {
            found.push(Finding::warn(
                ID,
                format!(
                    "GPU {} drives a display at {connector}, so a change of its MIG mode stays pending",
                    gpu.index
                ),
                "systemctl isolate multi-user.target ends the display",
            ));
        }
    }
    match found.is_empty() {
        true => vec![Finding::ok(
            ID,
            "neither nvidia_drm nor a display keeps a GPU open",
        )],
        false => found,
    }
}

/// Returns the connector of a GPU that has a display. The kernel's name of a PCI device has a domain of 4 digits, and
/// the driver's one of 8.
fn display(root: &Path, gpu: &Gpu) -> Option<String> {
    let bus = gpu.pci_bus_id.to_lowercase();
    let bus = bus.get(bus.len().checked_sub(12)?..)?;
    let cards = root.join("sys/bus/pci/devices").join(bus).join("drm");
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut connectors = entries(&cards).flat_map(|card| entries(&card.path()));
    let has_display = |connector: &std::fs::DirEntry| {
        let status = files::read_text(&connector.path().join("enabled"), MAX_PARAMETER);
        status.is_ok_and(|text| text.trim() == "enabled")
    };
    let connector = connectors.find(has_display)?;
    Some(connector.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Weight;

    #[test]
    fn names_pending_mode() {
        let gpu = Gpu {
            index: 2,
            minor: 2,
            uuid: "GPU-1".into(),
            name: "A100".to_owned(),
            pci_bus_id: String::new(),
            mig: MigMode::Disabled,
            mig_pending: Some(MigMode::Enabled),
            profiles: Vec::new(),
            instances: Vec::new(),
        };
        let finding = mode(&gpu);
        assert_eq!(finding.weight, Weight::Warn);
        assert_eq!(
            finding.repair.as_deref(),
            Some("nvidia-smi --gpu-reset -i 2")
        );
    }
}
