//! Switches MIG on and off. The apply holds each such GPU on record meanwhile, so that no create gets it.

use super::plan::GpuPlan;
use super::{ApplyOptions, in_use};
use crate::draft;
use crate::error::{self, Context, Error, Result};
use crate::gpu::reset::{Program, Reset};
use crate::gpu::{DriverError, IN_USE, Mig, ModeChange, Session};
use crate::leases::Leases;
use crate::model::{Gpu, GpuUuid, MigMode};
use crate::store::{Instance, InstanceState, Operation, Origin, Resource, WholeGpu};
use std::time::{Duration, Instant};

/// The time for which a reset is tried again: creates and monitoring have sessions with the driver, of a moment each.
const PATIENCE: Duration = Duration::from_secs(10);
const GAP: Duration = Duration::from_millis(250);

/// The GPUs whose MIG mode an apply changes, each with the record that holds it as a whole.
#[derive(Default)]
pub(super) struct Holds(Vec<Hold>);

struct Hold {
    gpu: Gpu,
    on: bool,
    instance: Instance,
}

impl Holds {
    /// Drafts the records of the GPUs whose mode plans change.
    pub(super) fn draft(name: &str, operation: &Operation, gpus: &[GpuPlan]) -> Result<Holds> {
        let changed = gpus.iter();
        let holds = changed.filter_map(|gpu| Some((&gpu.state.gpu.gpu, gpu.mode?)));
        let hold = |(gpu, on): (&Gpu, bool)| {
            let whole = Resource::Gpu(WholeGpu::of(gpu, 0));
            let mut instance =
                draft::instance(whole, Origin::Administrator, InstanceState::Creating)?;
            instance.layout = Some(name.to_owned());
            instance.operation = Some(operation.id().clone());
            Ok(Hold {
                gpu: gpu.clone(),
                on,
                instance,
            })
        };
        holds.map(hold).collect::<Result<_>>().map(Holds)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the records.
    pub(super) fn records(&self) -> impl Iterator<Item = &Instance> {
        self.0.iter().map(|hold| &hold.instance)
    }

    /// Removes the records.
    pub(super) fn end(self, context: &Leases<'_>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        context.store.lock("apply")?.change(|state| {
            for instance in self.records() {
                state.remove_instance(&instance.id);
            }
            Ok(())
        })
    }

    /// Says whether one is of this GPU.
    pub(super) fn has(&self, gpu: &GpuUuid) -> bool {
        self.0.iter().any(|hold| hold.gpu.uuid == *gpu)
    }

    /// Sets the modes, and resets the GPUs whose driver wants that, as a part of the operation. A GPU that is refused keeps no
    /// other from its mode.
    pub(super) fn set_modes(
        &self,
        context: &Leases<'_>,
        driver: &mut Session<'_>,
        operation: &Operation,
        options: ApplyOptions,
    ) -> Result<()> {
        let (mut pending, mut results) = (Vec::new(), Vec::new());
        for hold in &self.0 {
            match driver.set_mig_mode(&hold.gpu.uuid, hold.on) {
                Ok(ModeChange::Done) => hold.tell(),
                Ok(ModeChange::AfterReset) => pending.push(hold),
                Err(e) => results.push(Err(refused(context, &hold.gpu, e))),
            }
        }
        if !pending.is_empty() {
            let reset = match options.skip_reset {
                true => Err(Error::new("--skip-reset is given")),
                false => reset_all(context, driver, &pending, operation),
            };
            results.push(match reset.context(|| what(&pending)) {
                Ok(Reset::Done) => Ok(()),
                Ok(Reset::NotSupported(e)) => {
                    Err(unsupported(driver, &pending, options.keep_pending, e))
                }
                Err(e) => {
                    let gpus = pending.iter().map(|hold| &hold.gpu);
                    let stop = match options.skip_reset {
                        true => String::new(),
                        false => in_use::advice(&context.config.driver.root, gpus),
                    };
                    let indexes = indexes(&pending);
                    Err(e.hint(format!(
                        "{stop}run nvidia-smi --gpu-reset -i {indexes}, or reboot, and apply again"
                    )))
                }
            });
        }
        error::all(results)
    }
}

impl Hold {
    fn tell(&self) {
        let word = if self.on { "on" } else { "off" };
        tracing::info!("MIG is {word} on GPU {}", self.gpu.index);
    }
}

fn refused(context: &Leases<'_>, gpu: &Gpu, e: DriverError) -> Error {
    if e.code() != Some(IN_USE) {
        return e.into();
    }
    let mut end = in_use::advice(&context.config.driver.root, [gpu].into_iter());
    if end.is_empty() {
        let index = gpu.index;
        end = format!("end what uses GPU {index}, also monitoring and displays, then ");
    }
    Error::from(e).hint(end + "apply again")
}

/// Returns the error of a reset that cannot be done. A pending mode would keep the GPU from slices until a reboot that nobody
/// has planned, so it is set back unless the caller plans one.
fn unsupported(driver: &Session<'_>, pending: &[&Hold], keeps: bool, e: Error) -> Error {
    let e = Error::failed(what(pending)).caused_by(e);
    if keeps {
        return e.hint("reboot, and apply again; the new mode waits for the reboot");
    }
    let back = pending.iter().map(|hold| {
        let set = driver.set_mig_mode(&hold.gpu.uuid, !hold.on);
        set.map(drop).map_err(Error::from)
    });
    let is_back = error::all(back);
    let e = e.hint(
        "a reboot is needed: apply with --pending, which keeps the new mode for it, reboot, and apply again",
    );
    e.and(is_back.err())
}

fn reset_all(
    context: &Leases<'_>,
    driver: &mut Session<'_>,
    pending: &[&Hold],
    operation: &Operation,
) -> Result<Reset> {
    let driver_config = &context.config.driver;
    let program = Program::find(&driver_config.root, &driver_config.library)?;
    let addresses: Vec<&str> = { pending.iter() }
        .map(|hold| hold.gpu.pci_bus_id.as_str())
        .collect();
    let begun = Instant::now();
    loop {
        check_empty(driver, pending)?;
        driver.close();
        // The GPUs stay held until the program has ended, even if this process is killed.
        let lock = operation
            .for_child()
            .context(|| "keep the GPU for the reset")?;
        match program.reset(&addresses, lock) {
            Ok(Reset::Done) => break,
            Ok(unsupported) => return Ok(unsupported),
            Err(_) if begun.elapsed() < PATIENCE => crate::effect::pause(GAP),
            Err(e) => return Err(e),
        }
    }
    let gpus = driver.detailed_gpus()?;
    for hold in pending {
        let wanted = match hold.on {
            true => MigMode::Enabled,
            false => MigMode::Disabled,
        };
        let is_it = |gpu: &Gpu| gpu.uuid == hold.gpu.uuid && gpu.mig == wanted;
        if !gpus.iter().any(|gpu| is_it(&gpu.gpu)) {
            let index = hold.gpu.index;
            return Err(Error::new(format!(
                "GPU {index} has its old mode after the reset"
            )));
        }
        hold.tell();
    }
    Ok(Reset::Done)
}

/// Refuses the reset of a GPU with instances, which would end without a word. An administrator may have made one.
fn check_empty(driver: &Session<'_>, pending: &[&Hold]) -> Result<()> {
    for gpu in driver.detailed_gpus()? {
        let is_it = pending.iter().any(|hold| hold.gpu.uuid == gpu.gpu.uuid);
        if is_it && !gpu.instances.is_empty() {
            let index = gpu.gpu.index;
            return Err(Error::new(format!("GPU {index} has new instances")));
        }
    }
    Ok(())
}

fn what(pending: &[&Hold]) -> String {
    let indexes = indexes(pending);
    format!("reset GPU {indexes} for its new MIG mode (nvidia-smi --gpu-reset -i {indexes})")
}

fn indexes(holds: &[&Hold]) -> String {
    let indexes: Vec<String> = holds
        .iter()
        .map(|hold| hold.gpu.index.to_string())
        .collect();
    indexes.join(",")
}
