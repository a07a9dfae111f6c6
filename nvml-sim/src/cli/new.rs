use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args};

use super::Failure;
use crate::cgroups;
use crate::engine::{
    Architecture, ComputeMode, Driver, LimitBackend, MEMORY_LIMITS_SINCE, Machine, Mode, Model,
    NVL_SINCE, NewGpu, NvlProfile,
};
use crate::holders;
use crate::state;

#[derive(Args)]
pub struct New {
    /// The directory; it must be empty or missing
    dir: PathBuf,
    /// A GPU model; may be repeated, each with a --count of its own
    #[arg(long, required = true, value_name = "MODEL")]
    gpu: Vec<String>,
    /// How many of the --gpu before it [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    count: Vec<u32>,
    /// MIG mode of the GPUs that have MIG
    #[arg(long, value_enum, default_value = "on")]
    mig: Mode,
    /// Compute mode of the GPUs; in MIG mode a GPU has only the default
    #[arg(long, value_enum, default_value = "default")]
    compute_mode: ComputeMode,
    /// Exchange the halves in the numbers of GPU instances, as on GPUs with a unit of the other
    /// half fused off: on all GPUs, or on those listed (0,2)
    #[arg(long, value_name = "INDICES", num_args = 0..=1, require_equals = true,
          default_missing_value = "all")]
    floor_swept: Option<String>,
    /// Load the nvidia-modeset module, which a machine with a display has and a server has not
    #[arg(long)]
    modeset: bool,
    /// Have nvidia-smi refuse resets as not supported, as in many virtual machines
    #[arg(long)]
    no_reset: bool,
    /// The NUMA node of each GPU, as 0,0,1,1 [default: all on node 0]
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    numa: Vec<u32>,
    /// The GPUs with the same number are connected by NVLink, as 0,0,1,1 [default: none]
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    nvlink: Vec<u32>,
    /// The text that UUIDs derive from [default: the directory]
    #[arg(long)]
    seed: Option<String>,
    /// The release branch of the driver: 550, 580 or 615
    #[arg(long, default_value = "580", value_parser = branch)]
    driver: Driver,
    /// The keeper of memory limits by cgroup, which drivers have from 615 on [default: misc]
    #[arg(long, value_enum, value_name = "BACKEND")]
    limits: Option<LimitBackend>,
    /// Install the simulated MPS and CUDA, which cargo builds as the package cuda-sim
    #[arg(long)]
    mps: bool,
    /// The library to copy [default: the one built with this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

fn branch(text: &str) -> Result<Driver, String> {
    let driver = text.parse().ok().and_then(Driver::of_branch);
    driver.ok_or_else(|| format!("{text:?} is not a branch: write 550, 580 or 615"))
}

impl New {
    pub fn run(self, matches: Option<&ArgMatches>) -> Result<(), Failure> {
        let counts = self.counts(matches)?;
        let total: u32 = counts.iter().sum();
        if total > 32 {
            return Err(format!("{total} GPUs: the driver has capabilities for 32").into());
        }
        let swept = self.swept(total)?;
        let mut gpus = Vec::new();
        for (name, count) in self.gpu.iter().zip(counts) {
            let model = Model::find(name).ok_or_else(|| unknown(name))?;
            for _ in 0..count {
                let floor_swept = swept.contains(&(gpus.len() as u32));
                gpus.push(NewGpu {
                    model,
                    floor_swept,
                    mode: match model.has_mig() {
                        true => self.mig,
                        false => Mode::Off,
                    },
                });
            }
        }
        let dir = std::path::absolute(&self.dir)?;
        if fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(format!("{} is not empty", dir.display()).into());
        }
        let library = match self.library {
            Some(library) => library,
            None => built("libnvml_sim.so", ": name it with --library")?,
        };
        let seed = self
            .seed
            .unwrap_or_else(|| dir.to_string_lossy().into_owned());
        let mut machine = Machine::new(&seed, &gpus);
        machine.modeset = self.modeset;
        machine.no_reset = self.no_reset;
        machine.driver = self.driver;
        if let Some(limits) = self.limits {
            let branch = machine.driver.branch();
            if branch < MEMORY_LIMITS_SINCE {
                return Err(
                    format!("driver {branch} has no memory limits: add --driver 615").into(),
                );
            }
            machine.limit_backend = limits;
        }
        for (gpu, node) in machine.gpus.iter_mut().zip(&self.numa) {
            gpu.numa_node = *node;
        }
        for (gpu, group) in machine.gpus.iter_mut().zip(&self.nvlink) {
            gpu.nvlink = Some(*group);
        }
        let lists_nvl = machine.driver.branch() >= NVL_SINCE;
        for gpu in &mut machine.gpus {
            gpu.nvl = lists_nvl.then(|| match gpu.model().architecture {
                Architecture::Ampere => NvlProfile::Refused,
                _ => NvlProfile::Made,
            });
            gpu.compute_mode = self.compute_mode;
            if gpu.mode == Mode::On && gpu.compute_mode != ComputeMode::Default {
                return Err("a GPU in MIG mode has the default compute mode: add --mig off".into());
            }
        }
        fs::create_dir_all(dir.join("lib"))?;
        // First the library: where the state is, the machine is whole.
        fs::copy(&library, dir.join("lib/libnvidia-ml.so.1"))
            .map_err(|e| format!("copy {}: {e}", library.display()))?;
        if self.mps {
            install_mps(&dir)?;
        }
        if machine.limit_backend == LimitBackend::Dmem {
            cgroups::create_dmem(&dir)?;
        }
        state::create(&dir, &machine)?;
        println!("{}", dir.join("lib/libnvidia-ml.so.1").display());
        Ok(())
    }

    /// A count for each --gpu: the --count that stands between it and the next.
    fn counts(&self, matches: Option<&ArgMatches>) -> Result<Vec<u32>, Failure> {
        let places = |id: &str| -> Vec<usize> {
            matches
                .and_then(|m| m.indices_of(id))
                .map(Iterator::collect)
                .unwrap_or_default()
        };
        let gpu_places = places("gpu");
        let mut counts = vec![None; self.gpu.len()];
        for (count, place) in self.count.iter().zip(places("count")) {
            let before = gpu_places.iter().filter(|p| **p < place).count();
            match before.checked_sub(1).map(|i| &mut counts[i]) {
                Some(slot @ None) => *slot = Some(*count),
                _ => return Err(format!("--count {count} has no --gpu of its own").into()),
            }
        }
        Ok(counts.into_iter().map(|count| count.unwrap_or(1)).collect())
    }

    fn swept(&self, total: u32) -> Result<Vec<u32>, Failure> {
        match self.floor_swept.as_deref() {
            None => Ok(Vec::new()),
            Some("all") => Ok((0..total).collect()),
            Some(list) => {
                let parse = |text: &str| text.parse().ok().filter(|i| *i < total);
                let bad = |text| format!("--floor-swept: no GPU {text:?}").into();
                list.split(',')
                    .map(|text| parse(text).ok_or_else(|| bad(text)))
                    .collect()
            }
        }
    }
}

fn unknown(name: &str) -> String {
    let known: Vec<_> = Model::all().iter().map(|m| m.key.as_str()).collect();
    format!("no GPU model {name:?}; there are {}", known.join(", "))
}

/// Installs the control program and the CUDA library, and makes the folder for the host's `/proc`.
fn install_mps(dir: &Path) -> Result<(), Failure> {
    let program = dir.join("usr/bin/nvidia-cuda-mps-control");
    let files = [
        ("nvidia-cuda-mps-control", program),
        ("libcuda_sim.so", dir.join("lib/libcuda.so.1")),
    ];
    fs::create_dir_all(dir.join("usr/bin"))?;
    fs::create_dir_all(dir.join(holders::HOST_PROC))?;
    for (name, place) in files {
        let from = built(name, ": build the package cuda-sim")?;
        fs::copy(&from, &place).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
    }
    Ok(())
}

/// Finds a file that cargo built with this program: beside it, or where cargo leaves it for tests.
/// The newest wins, since a build for tests does not renew the one beside the program.
fn built(name: &str, hint: &str) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    ["", "deps", "../lib", ".."]
        .iter()
        .map(|place| beside.join(place).join(name))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
        .ok_or_else(|| {
            let program = program.display();
            format!("cannot find {name} beside {program}{hint}").into()
        })
}
