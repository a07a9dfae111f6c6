//! MIG mode.

use super::handle::Handle;
use super::nvml;
use super::pointers::Out;
use crate::engine::{Code, Mode};

fn number(mode: Mode) -> u32 {
    match mode {
        Mode::Off => 0,
        Mode::On => 1,
    }
}

nvml! {
    fn nvmlDeviceGetMigMode(call, device: Handle, current: Out<u32>, pending: Out<u32>) {
        let machine = call.machine()?;
        let gpu = device.gpu(&machine)?.of_mig_model()?;
        pending.check()?;
        current.put(number(gpu.mode))?;
        pending.put(number(gpu.pending))
    }

    // That the mode is not in force (yet) is told by the status, not by the return code.
    fn nvmlDeviceSetMigMode(call, device: Handle, mode: u32, status: Out<u32>) {
        let mode = match mode {
            0 => Mode::Off,
            1 => Mode::On,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        status.check()?;
        if let Some(forced) = call.activation_status() {
            return status.put(forced);
        }
        let activation = call.change(device.gpu_index(), |machine, holds| {
            device.gpu(machine)?;
            machine.set_mig_mode(device.gpu_index(), mode, holds)
        })?;
        status.put(activation.map_or(0, |code| code.0))
    }
}
