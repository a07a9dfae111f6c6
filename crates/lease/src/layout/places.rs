//! From a checkpoint to the instances and places of each GPU.

use super::checkpoint::{Device, GpuInstance, State, VERSION};
use crate::error::{Context, Error, Result};
use crate::gpu::DetailedGpu;
use crate::model::{Part, Placement};
use crate::placement::NewInstance;

/// The compute slices of NVML's compute instance profiles, by their numbers.
const SLICES: [u32; 8] = [1, 2, 3, 4, 7, 8, 6, 1];

/// The exact state of a machine, from a file.
#[derive(Debug)]
pub struct Checkpoint(State);

/// The exact state that a GPU is to have.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceTarget {
    /// Whether MIG is to be on.
    pub mig_enabled: bool,
    /// The instances at their places.
    pub instances: Vec<NewInstance>,
}

impl Checkpoint {
    /// Parses the text of a checkpoint.
    ///
    /// # Errors
    /// Text that is no checkpoint of version v1.
    pub fn parse(text: &str) -> Result<Checkpoint> {
        let state: State = serde_json::from_str(text).map_err(|e| {
            Error::new(format!("it is no checkpoint: {e}"))
                .hint("write one with migctl checkpoint -f FILE")
        })?;
        match state.version.as_str() {
            VERSION => Ok(Checkpoint(state)),
            other => Err(Error::new(format!(
                "its version is {other:?}, and this migctl knows {VERSION}"
            ))
            .hint("write one with migctl checkpoint -f FILE")),
        }
    }
}

/// Returns the target of each GPU; none for one that the checkpoint does not name.
///
/// # Errors
/// A GPU that the machine lacks, or that the checkpoint names twice, and a profile that its GPU lacks.
pub fn resolve_checkpoint(
    checkpoint: &Checkpoint,
    gpus: &[DetailedGpu],
) -> Result<Vec<Option<PlaceTarget>>> {
    let mut targets = vec![None; gpus.len()];
    for device in checkpoint.0.mig_state.devices.iter().flatten() {
        let uuid = &device.uuid;
        let position = gpus.iter().position(|gpu| gpu.gpu.uuid.as_str() == uuid);
        let position = position.ok_or_else(|| {
            Error::new(format!(
                "the checkpoint has GPU {uuid}, and this machine lacks it"
            ))
            .hint("restore a checkpoint of this machine; nvidia-smi -L lists its GPUs")
        })?;
        let what = || format!("restore GPU {position}");
        if targets[position].is_some() {
            return Err(Error::new("the checkpoint has it twice").hint("write a new checkpoint"))
                .context(what);
        }
        targets[position] = Some(target(device, &gpus[position]).context(what)?);
    }
    Ok(targets)
}

fn target(device: &Device, gpu: &DetailedGpu) -> Result<PlaceTarget> {
    let instances = device.gpu_instances.iter().flatten();
    let instances: Result<Vec<NewInstance>> = instances.map(|one| instance(one, gpu)).collect();
    let mig_enabled = match device.mig_mode {
        0 => false,
        1 => true,
        other => {
            return Err(Error::new(format!("{other} is no MIG mode")).hint("write 0 or 1"));
        }
    };
    let instances = instances?;
    if !mig_enabled && !instances.is_empty() {
        return Err(
            Error::new("the checkpoint has instances with MIG off").hint("write a new checkpoint")
        );
    }
    Ok(PlaceTarget {
        mig_enabled,
        instances,
    })
}

fn instance(one: &GpuInstance, gpu: &DetailedGpu) -> Result<NewInstance> {
    let (model, number) = (&gpu.gpu.name, one.profile);
    let hint = "restore a checkpoint of this machine";
    let offer = gpu.offers.iter().find(|offer| offer.number == number);
    let offer = offer.ok_or_else(|| {
        Error::new(format!("{model} has no profile with number {number}")).hint(hint)
    })?;
    let placement = Placement {
        start: one.placement.start,
        size: one.placement.size,
    };
    if !offer.profile.placements.contains(&placement) {
        let name = &offer.profile.name;
        return Err(Error::new(format!("{model} has no place {placement} for {name}")).hint(hint));
    }
    let part = |number: u32| {
        let known = usize::try_from(number).ok().and_then(|n| SLICES.get(n));
        let part = |slices: &u32| Part {
            slices: *slices,
            number: Some(number),
        };
        known.map(part).ok_or_else(|| {
            Error::new(format!(
                "{number} is no number of a compute instance profile"
            ))
            .hint(hint)
        })
    };
    let compute = one.compute_instances.iter().flatten();
    let mut parts: Vec<Part> = compute.map(|ci| part(ci.profile)).collect::<Result<_>>()?;
    // The largest first: they have the fewest places.
    parts.sort_by_key(|part| std::cmp::Reverse(*part));
    Ok(NewInstance {
        profile_id: offer.profile.id,
        placement,
        parts,
    })
}
