//! MIG: the mode of each GPU, and instances that differ from the records.

use super::finding::Finding;
use super::host::{Host, Seen};
use runmig_lease::model::{Gpu, MigMode};
use runmig_lease::store::{Held, InstanceState};

pub fn findings(host: &Host) -> Vec<Finding> {
    let seen = match host.seen() {
        Ok(seen) => seen,
        Err(why) => return vec![Finding::skip("mode", why)],
    };
    let gpus = &seen.inventory.snapshot.gpus;
    let mut findings: Vec<Finding> = gpus.iter().map(mode).collect();
    findings.extend(foreign(seen));
    findings.extend({ seen.empty.iter() }.map(|(gpu, gi)| {
        Finding::warn(
            "empty",
            format!(
                "GPU instance {gi} on GPU {gpu} has no compute instance, so no container can use it"
            ),
            format!("nvidia-smi mig -i {gpu} -gi {gi} -dgi, or migctl gc if runmig made it"),
        )
    }));
    findings.extend(records(seen));
    findings
}

fn mode(gpu: &Gpu) -> Finding {
    const ID: &str = "mode";
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

/// Instances that an administrator or another tool made.
fn foreign(seen: &Seen) -> Vec<Finding> {
    let inventory = &seen.inventory;
    let mut findings = Vec::new();
    for gpu in &inventory.snapshot.gpus {
        let foreign = gpu.instances.iter().filter(|i| {
            inventory.at(gpu, i.placement).is_empty() && !inventory.is_damaged(gpu, i.placement)
        });
        findings.extend(foreign.map(|i| {
            Finding::warn(
                "foreign",
                format!("runmig did not make GPU instance {} at {} on GPU {}, and leaves its place alone", i.id, i.placement, gpu.index),
                format!("nvidia-smi mig -i {} -gi {} -dci && nvidia-smi mig -i {} -gi {} -dgi, or set adopt = true", gpu.index, i.id, gpu.index, i.id),
            )
        }));
    }
    findings
}

/// Records whose instance the driver does not have, and those that the driver does not destroy.
fn records(seen: &Seen) -> Vec<Finding> {
    let one = |held: &Held| {
        let slice = held.instance.slice()?;
        let gpu = seen
            .inventory
            .snapshot
            .gpus
            .iter()
            .find(|gpu| gpu.uuid == slice.gpu_uuid);
        let id = held.lease.id.as_str();
        let what = format!(
            "{} at {} on GPU {}",
            slice.profile, slice.placement, slice.gpu_index
        );
        match (&held.instance.state, gpu) {
            (InstanceState::Quarantined(attempt), _) => Some(Finding::fail(
                "quarantined",
                format!("the driver did not destroy {what}: {}", attempt.error),
                "migctl list names the processes that hold it; end them, then migctl gc",
            )),
            (InstanceState::Ready, Some(gpu))
                if !gpu.instances.iter().any(|i| i.placement == slice.placement) =>
            {
                Some(Finding::fail(
                    "missing",
                    format!(
                        "the driver does not have {what}, which is on record for {}",
                        held.lease.holder.title()
                    ),
                    format!("end its container, then migctl release {id}"),
                ))
            }
            _ => None,
        }
    };
    let findings: Vec<Finding> = seen.inventory.leases.iter().filter_map(one).collect();
    match findings.is_empty() {
        true => vec![Finding::ok(
            "records",
            "every slice on record is on its GPU",
        )],
        false => findings,
    }
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
