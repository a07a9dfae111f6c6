//! The board and its sensors, as a GPU shows them on which nothing runs.
//!
//! Hardware answers these calls with values; the values here are made up. A MIG device is not
//! asked, since its answers are unknown.

use super::handle::{Device, Handle};
use super::nvml;
use super::pointers::Out;
use super::types::Utilization;
use crate::driver_root::VIDEO_BIOS;
use crate::engine::{Code, Gpu, Machine};

const CELSIUS: u32 = 31;
const MILLIWATTS: u32 = 68_000;
/// By clock: graphics, multiprocessors, memory, video.
const MEGAHERTZ: [u32; 4] = [345, 345, 2619, 765];
const PART_NUMBER: &str = "699-00000-0000-000";

fn board(device: Handle, machine: &Machine) -> Result<&Gpu, Code> {
    match device.device(machine)? {
        Device::Gpu(gpu) => Ok(gpu),
        Device::Mig(_) => Err(Code::NOT_SUPPORTED),
    }
}

nvml! {
    fn nvmlDeviceGetEccMode(call, device: Handle, current: Out<u32>, pending: Out<u32>) {
        board(device, &*call.machine()?)?;
        pending.check()?;
        current.put(1)?;
        pending.put(1)
    }

    fn nvmlDeviceGetVbiosVersion(call, device: Handle, version: Out<u8>, length: u32) {
        board(device, &*call.machine()?)?;
        version.put_text(length, VIDEO_BIOS)
    }

    fn nvmlDeviceGetBoardPartNumber(call, device: Handle, number: Out<u8>, length: u32) {
        board(device, &*call.machine()?)?;
        number.put_text(length, PART_NUMBER)
    }

    // Sensor 0 is the GPU's, and there is no other.
    fn nvmlDeviceGetTemperature(call, device: Handle, sensor: u32, celsius: Out<u32>) {
        board(device, &*call.machine()?)?;
        if sensor != 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        celsius.put(CELSIUS)
    }

    fn nvmlDeviceGetUtilizationRates(call, device: Handle, rates: Out<Utilization>) {
        board(device, &*call.machine()?)?;
        rates.put(Utilization { gpu: 0, memory: 0 })
    }

    fn nvmlDeviceGetPowerUsage(call, device: Handle, milliwatts: Out<u32>) {
        board(device, &*call.machine()?)?;
        milliwatts.put(MILLIWATTS)
    }

    fn nvmlDeviceGetClockInfo(call, device: Handle, clock: u32, megahertz: Out<u32>) {
        board(device, &*call.machine()?)?;
        let value = MEGAHERTZ.get(clock as usize).ok_or(Code::INVALID_ARGUMENT)?;
        megahertz.put(*value)
    }
}
