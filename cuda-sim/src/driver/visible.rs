//! The GPUs that a process sees: those whose nodes it may open, and `CUDA_VISIBLE_DEVICES`.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use nvml_sim::engine::{Gpu, Machine, Mode};

use crate::error::CudaError;

/// Returns the GPUs that are not in MIG mode, with their indices. MIG devices are not simulated.
pub fn whole_gpus(machine: &Machine) -> impl Iterator<Item = (u32, &Gpu)> {
    let all = (0..).zip(&machine.gpus);
    all.filter(|(_, gpu)| gpu.mode == Mode::Off && !gpu.lost)
}

/// Returns the GPUs whose nodes this process may open.
///
/// # Errors
/// `nvidiactl` or every GPU's node is missing or forbidden (100), or `nvidia-uvm` is (999).
pub fn permitted<'a>(dir: &Path, machine: &'a Machine) -> Result<Vec<(u32, &'a Gpu)>, CudaError> {
    let nodes = node_dir(dir, machine);
    if !may_open(&nodes.join("nvidiactl")) {
        return Err(CudaError::NO_DEVICE);
    }
    let may_use = |gpu: &Gpu| may_open(&nodes.join(format!("nvidia{}", gpu.minor)));
    let gpus: Vec<_> = whole_gpus(machine)
        .filter(|(_, gpu)| may_use(gpu))
        .collect();
    if gpus.is_empty() {
        return Err(CudaError::NO_DEVICE);
    }
    if !may_open(&nodes.join("nvidia-uvm")) {
        return Err(CudaError::UNKNOWN);
    }
    Ok(gpus)
}

/// Returns `/dev` if it has any of the driver's nodes, as in a container, and otherwise the
/// machine's own folder.
fn node_dir(dir: &Path, machine: &Machine) -> PathBuf {
    let of_gpus = machine
        .gpus
        .iter()
        .map(|gpu| format!("nvidia{}", gpu.minor));
    let mut names = of_gpus.chain(["nvidiactl".into(), "nvidia-uvm".into()]);
    match names.any(|name| Path::new("/dev").join(name).exists()) {
        true => "/dev".into(),
        false => dir.join("dev"),
    }
}

/// Opens a node. No driver is behind it, so the kernel's "no such device" means that the process
/// may use it.
fn may_open(path: &Path) -> bool {
    let result = OpenOptions::new().read(true).write(true).open(path);
    let code = result.err().as_ref().and_then(io::Error::raw_os_error);
    matches!(code, None | Some(libc::ENXIO | libc::ENODEV))
}

/// Returns those of the GPUs that `CUDA_VISIBLE_DEVICES` names, in its order and up to its first
/// bad entry.
pub fn chosen(all: &[String], variable: Option<&str>) -> Vec<String> {
    let Some(list) = variable else {
        return all.to_vec();
    };
    let find = |entry: &str| match entry.parse::<usize>() {
        Ok(index) => all.get(index),
        Err(_) if entry.starts_with("GPU-") => all.iter().find(|uuid| uuid.starts_with(entry)),
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
    }
}
