//! The devices that a process sees: GPUs and MIG devices whose nodes it may open, and `CUDA_VISIBLE_DEVICES`.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nvml_sim::engine::{Machine, Mode, Target};

use crate::error::CudaError;

/// A GPU that is not in MIG mode, or a MIG device.
pub struct Visible {
    pub target: Target,
    pub uuid: String,
}

/// Returns the devices of a machine: the GPUs that are not in MIG mode, and the MIG devices of the others.
pub fn devices(machine: &Machine) -> Vec<Visible> {
    let mut all = Vec::new();
    for (index, gpu) in (0..).zip(&machine.gpus).filter(|(_, gpu)| !gpu.lost) {
        if gpu.mode == Mode::Off {
            let target = Target::of_gpu(index);
            let uuid = gpu.uuid.clone();
            all.push(Visible { target, uuid });
        }
        all.extend(gpu.mig_devices().iter().map(|device| Visible {
            target: Target::new(index, Some(device.gi.id), Some(device.ci.id)),
            uuid: device.uuid(),
        }));
    }
    all
}

/// Returns the memory that CUDA shows as the size of a device, in bytes.
pub fn memory(machine: &Machine, target: Target) -> u64 {
    let gpu = &machine.gpus[target.gpu as usize];
    let instance = target.gi.and_then(|gi| gpu.gpu_instance(gi).ok());
    let mib = match instance {
        Some(instance) => gpu.profile_of(instance).memory_mb,
        None => gpu.model().memory_mb - gpu.model().reserved_mb,
    };
    mib << 20
}

/// Returns the devices whose nodes this process may open: the GPU's, and of a MIG device also those of its
/// capabilities.
///
/// # Errors
/// `nvidiactl` or the nodes of every device are missing or forbidden (100), or `nvidia-uvm` is (999).
pub fn permitted(dir: &Path, machine: &Machine) -> Result<Vec<Visible>, CudaError> {
    let nodes = node_dir(dir, machine);
    if !may_open(&nodes.join("nvidiactl")) {
        return Err(CudaError::NO_DEVICE);
    }
    let capabilities = std::fs::read_to_string(dir.join("proc/driver/nvidia-caps/mig-minors"));
    let capabilities = capabilities.unwrap_or_default();
    let may_use = |device: &Visible| {
        let gpu = &machine.gpus[device.target.gpu as usize];
        let capability = |name: String| {
            let mut lines = capabilities.lines().filter_map(|line| line.split_once(' '));
            let found = lines.find(|(known, _)| *known == name);
            found.is_some_and(|(_, minor)| {
                // The driver opens a capability for reading.
                may_read(&nodes.join(format!("nvidia-caps/nvidia-cap{}", minor.trim())))
            })
        };
        let may_use_instance = match (device.target.gi, device.target.ci) {
            (Some(gi), Some(ci)) => {
                let minor = gpu.minor;
                capability(format!("gpu{minor}/gi{gi}/access"))
                    && capability(format!("gpu{minor}/gi{gi}/ci{ci}/access"))
            }
            _ => true,
        };
        may_open(&nodes.join(format!("nvidia{}", gpu.minor))) && may_use_instance
    };
    let mut all = devices(machine);
    all.retain(may_use);
    if all.is_empty() {
        return Err(CudaError::NO_DEVICE);
    }
    if !may_open(&nodes.join("nvidia-uvm")) {
        return Err(CudaError::UNKNOWN);
    }
    Ok(all)
}

/// Returns `/dev` if it has any of the driver's nodes, as in a container, and otherwise the
/// machine's own folder.
fn node_dir(dir: &Path, machine: &Machine) -> PathBuf {
    let of_gpus = machine.gpus.iter();
    let of_gpus = of_gpus.map(|gpu| format!("nvidia{}", gpu.minor));
    let mut names = of_gpus.chain(["nvidiactl".into(), "nvidia-uvm".into()]);
    match names.any(|name| Path::new("/dev").join(name).exists()) {
        true => "/dev".into(),
        false => dir.join("dev"),
    }
}

/// Opens a node. No driver is behind it, so the kernel's "no such device" means that the process
/// may use it.
fn may_open(path: &Path) -> bool {
    is_permitted(OpenOptions::new().read(true).write(true).open(path))
}

fn may_read(path: &Path) -> bool {
    is_permitted(OpenOptions::new().read(true).open(path))
}

fn is_permitted(result: io::Result<File>) -> bool {
    let code = result.err().as_ref().and_then(io::Error::raw_os_error);
    matches!(code, None | Some(libc::ENXIO | libc::ENODEV))
}

/// Returns those of the devices that `CUDA_VISIBLE_DEVICES` names, in its order and up to its first
/// bad entry. A process uses one MIG device at most.
pub fn chosen(all: &[String], variable: Option<&str>) -> Vec<String> {
    let mut chosen = named(all, variable);
    if chosen.iter().any(|uuid| uuid.starts_with("MIG-")) {
        chosen.truncate(1);
    }
    chosen
}

fn named(all: &[String], variable: Option<&str>) -> Vec<String> {
    let Some(list) = variable else {
        return all.to_vec();
    };
    let find = |entry: &str| match entry.parse::<usize>() {
        Ok(index) => all.get(index),
        Err(_) if entry.starts_with("GPU-") || entry.starts_with("MIG-") => {
            all.iter().find(|uuid| uuid.starts_with(entry))
        }
        Err(_) => None,
    };
    let entries = list.split(',').map(|entry| find(entry.trim()));
    entries.map_while(|found| found.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn chooses_by_index_and_uuid() {
        let all = ["GPU-a".to_owned(), "GPU-b".to_owned()];
        let names = |variable| chosen(&all, variable).join(" ");
        assert_eq!(names(None), "GPU-a GPU-b");
        assert_eq!(names(Some("1")), "GPU-b");
        assert_eq!(names(Some("GPU-b,0")), "GPU-b GPU-a");
        assert_eq!(names(Some("0,7,1")), "GPU-a");
        assert_eq!(names(Some("")), "");
        let all = ["MIG-a".to_owned(), "MIG-b".to_owned()];
        let names = |variable| chosen(&all, variable).join(" ");
        assert_eq!(names(None), "MIG-a");
        assert_eq!(names(Some("MIG-b,MIG-a")), "MIG-b");
    }
}
