//! Finding GPUs and asking what they are.

use super::handle::{Device, Handle};
use super::nvml;
use super::pointers::{Out, Text, chars};
use super::types::{PciIds, PciInfo, PciInfo_v1, PciInfoExt};
use crate::engine::{Code, Gpu, Machine};

nvml! {
    fn nvmlDeviceGetCount(call, count: Out<u32>) as nvmlDeviceGetCount_v2 {
        count.put(call.machine()?.gpus.len() as u32)
    }

    fn nvmlDeviceGetHandleByIndex(call, index: u32, device: Out<Handle>) as nvmlDeviceGetHandleByIndex_v2 {
        device.check()?;
        call.machine()?.gpu(index)?;
        device.put(Handle::of_gpu(index))
    }

    fn nvmlDeviceGetHandleByUUID(call, uuid: Text, device: Out<Handle>) {
        device.check()?;
        device.put(by_uuid(&*call.machine()?, &uuid.get()?)?)
    }

    fn nvmlDeviceGetHandleBySerial(call, serial: Text, device: Out<Handle>) {
        device.check()?;
        let (machine, serial) = (call.machine()?, serial.get()?);
        device.put(find(&machine, |gpu| gpu.serial == serial)?)
    }

    fn nvmlDeviceGetHandleByPciBusId(call, bus_id: Text, device: Out<Handle>) as nvmlDeviceGetHandleByPciBusId_v2 {
        device.check()?;
        device.put(by_pci(&*call.machine()?, &bus_id.get()?)?)
    }

    // The index of a GPU, or of a MIG device under its GPU.
    fn nvmlDeviceGetIndex(call, device: Handle, index: Out<u32>) {
        let machine = call.machine()?;
        index.put(match device.device(&machine)? {
            Device::Gpu(_) => device.gpu_index(),
            Device::Mig(mig) => {
                let all = mig.gpu.mig_devices();
                let place = all.iter().position(|d| d.ci.generation == mig.ci.generation);
                place.ok_or(Code::NOT_FOUND)? as u32
            }
        })
    }

    fn nvmlDeviceGetName(call, device: Handle, name: Out<u8>, length: u32) {
        let machine = call.machine()?;
        let text = match device.device(&machine)? {
            Device::Gpu(gpu) => gpu.model().product.clone(),
            Device::Mig(mig) => format!("{} MIG {}", mig.gpu.model().product, mig.profile_name()),
        };
        name.put_text(length, &text)
    }

    fn nvmlDeviceGetUUID(call, device: Handle, uuid: Out<u8>, length: u32) {
        let machine = call.machine()?;
        let text = match device.device(&machine)? {
            Device::Gpu(gpu) => gpu.uuid.clone(),
            Device::Mig(mig) => mig.uuid(),
        };
        uuid.put_text(length, &text)
    }

    // A MIG device has no node of its own, so it has no minor.
    fn nvmlDeviceGetMinorNumber(call, device: Handle, minor: Out<u32>) {
        let machine = call.machine()?;
        match device.device(&machine)? {
            Device::Gpu(gpu) => minor.put(gpu.minor),
            Device::Mig(_) => Err(Code::NOT_SUPPORTED),
        }
    }

    fn nvmlDeviceGetSerial(call, device: Handle, serial: Out<u8>, length: u32) {
        serial.put_text(length, &device.device(&*call.machine()?)?.gpu().serial)
    }

    fn nvmlDeviceGetArchitecture(call, device: Handle, architecture: Out<u32>) {
        architecture.put(device.device(&*call.machine()?)?.gpu().model().architecture.number())
    }

    fn nvmlDeviceGetBrand(call, device: Handle, brand: Out<u32>) {
        brand.put(device.device(&*call.machine()?)?.gpu().model().brand_number())
    }

    fn nvmlDeviceGetCudaComputeCapability(
        call, device: Handle, major: Out<i32>, minor: Out<i32>,
    ) {
        let [a, b] = device.device(&*call.machine()?)?.gpu().model().compute_capability;
        minor.check()?;
        major.put(a as i32)?;
        minor.put(b as i32)
    }

    fn nvmlDeviceGetPciInfo(call, device: Handle, info: Out<PciInfo_v1>) as nvmlDeviceGetPciInfo_v2 {
        info.put(pci_info(device.device(&*call.machine()?)?.gpu()).legacy)
    }

    fn nvmlDeviceGetPciInfo_v3(call, device: Handle, info: Out<PciInfo>) {
        info.put(pci_info(device.device(&*call.machine()?)?.gpu()))
    }

    fn nvmlDeviceGetPciInfoExt(call, device: Handle, info: Out<PciInfoExt>) {
        let machine = call.machine()?;
        let PciInfo { legacy: PciInfo_v1 { ids, .. }, bus_id } =
            pci_info(device.device(&machine)?.gpu());
        let version = info.version(1, Code::ARGUMENT_VERSION_MISMATCH)?;
        // A 3D controller.
        info.put(PciInfoExt { version, ids, base_class: 3, sub_class: 2, bus_id })
    }

    fn nvmlDeviceGetPersistenceMode(call, device: Handle, mode: Out<u32>) {
        device.gpu(&*call.machine()?)?;
        mode.put(1)
    }

    fn nvmlDeviceGetComputeMode(call, device: Handle, mode: Out<u32>) {
        let machine = call.machine()?;
        device.device(&machine)?;
        mode.put(machine.gpu(device.gpu_index())?.compute_mode.number())
    }

    fn nvmlDeviceGetVirtualizationMode(call, device: Handle, mode: Out<u32>) {
        device.gpu(&*call.machine()?)?;
        mode.put(0)
    }
}

fn find(machine: &Machine, is: impl Fn(&Gpu) -> bool) -> Result<Handle, Code> {
    let index = machine.gpus.iter().position(is).ok_or(Code::NOT_FOUND)? as u32;
    machine.gpu(index)?;
    Ok(Handle::of_gpu(index))
}

/// `GPU-…`, `MIG-…`, or the form MIG devices had before: `MIG-GPU-…/GI/CI`.
fn by_uuid(machine: &Machine, uuid: &str) -> Result<Handle, Code> {
    if !uuid.starts_with("MIG-") {
        return find(machine, |gpu| gpu.uuid == uuid);
    }
    for (index, gpu) in machine.gpus.iter().enumerate().filter(|(_, gpu)| !gpu.lost) {
        for mig in gpu.mig_devices() {
            let old_form = format!("MIG-{}/{}/{}", gpu.uuid, mig.gi.id, mig.ci.id);
            if mig.uuid() == uuid || old_form == uuid {
                return Ok(Handle::of_mig_device(index as u32, &mig));
            }
        }
    }
    Err(Code::NOT_FOUND)
}

/// `domain:bus:device.function` with any number of digits, and the domain may be left out.
fn by_pci(machine: &Machine, text: &str) -> Result<Handle, Code> {
    let hex = |digits: &str| u32::from_str_radix(digits, 16).map_err(|_| Code::INVALID_ARGUMENT);
    let mut parts = text.rsplit(':');
    let mut part = || parts.next().ok_or(Code::INVALID_ARGUMENT);
    let (device, bus) = (part()?, hex(part()?)?);
    let domain = parts.next().map_or(Ok(0), hex)?;
    let device = hex(device
        .split_once('.')
        .map_or(device, |(device, _function)| device))?;
    find(machine, |gpu| (domain, gpu.pci_bus, device) == (0, bus, 0))
}

fn pci_info(gpu: &Gpu) -> PciInfo {
    // NVML writes the numbers in capitals, the kernel does not.
    let address = gpu.pci_address().to_ascii_uppercase();
    let ids = PciIds {
        domain: 0,
        bus: gpu.pci_bus,
        device: 0,
        pci_device_id: gpu.model().pci_device_id(),
        // The board's own id, with NVIDIA as its maker.
        pci_subsystem_id: 0x1463_10de,
    };
    let bus_id_legacy = chars(&address);
    PciInfo {
        legacy: PciInfo_v1 { bus_id_legacy, ids },
        bus_id: chars(&format!("0000{address}")),
    }
}
