//! The health of GPUs: field values, and the fabric.

use std::time::{SystemTime, UNIX_EPOCH};

use super::handle::{Device, Handle};
use super::nvml;
use super::pointers::Out;
use super::types::{FieldValue, GpuFabricInfo_v2};
use crate::engine::Code;

/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const UNSIGNED_LONG_LONG: u32 = 3;

nvml! {
    // The call succeeds; each entry says for itself whether it does.
    fn nvmlDeviceGetFieldValues(call, device: Handle, count: i32, values: Out<FieldValue>) {
        let machine = call.machine()?;
        let device = device.device(&machine)?;
        values.check()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for entry in (0..count.max(0) as usize).map(|i| values.at(i)) {
            let asked = entry.get()?;
            let found = match device {
                Device::Gpu(gpu) => gpu.field(asked.field_id, &machine.driver),
                Device::Mig(_) => Err(Code::NOT_SUPPORTED),
            };
            entry.put(FieldValue {
                timestamp: now.as_micros() as u64,
                latency_usec: 0,
                value_type: found.map_or(0, |_| UNSIGNED_LONG_LONG),
                nvml_return: found.err().map_or(0, |code| code.0),
                value: found.unwrap_or(0),
                ..asked
            })?;
        }
        Ok(())
    }

    fn nvmlDeviceGetGpuFabricInfoV(call, device: Handle, info: Out<GpuFabricInfo_v2>) {
        let machine = call.machine()?;
        let Device::Gpu(gpu) = device.device(&machine)? else {
            return Err(Code::NOT_SUPPORTED);
        };
        let version = info.version(2, Code::ARGUMENT_VERSION_MISMATCH)?;
        let (state, status) = gpu.fabric()?;
        info.put(GpuFabricInfo_v2 {
            version,
            cluster_uuid: [0; 16],
            status,
            clique_id: 0,
            state,
            health_mask: 0,
        })
    }
}
