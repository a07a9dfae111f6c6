//! The signs that a GPU is sick, as NVML tells them. A driver without a function, or without an answer, gives no sign.

use super::session::{Session, call, raw};
use crate::gpu::{FUNCTION_NOT_FOUND, GPU_IS_LOST, NOT_SUPPORTED, RESET_REQUIRED, Reason, Result};
use crate::model::{GpuUuid, Sign, SignKind};
use nvml_wrapper::Device;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper_sys::bindings::{self as sys, field_id as id};

pub(super) fn sign(kind: SignKind, amount: u32) -> Sign {
    let amount = u64::from(amount);
    Sign { kind, amount }
}

/// The fields for which one call asks.
const FIELDS: [(SignKind, u32); 5] = {
    use SignKind::*;
    [
        (RowRemapFailed, id::NVML_FI_DEV_REMAPPED_FAILURE),
        (RecoveryAction, id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
        (RowRemapPending, id::NVML_FI_DEV_REMAPPED_PENDING),
        (PageRetirementPending, id::NVML_FI_DEV_RETIRED_PENDING),
        (UncorrectableErrors, id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL),
    ]
};

impl Session<'_> {
    pub(super) fn signs_in_fields(&self, device: &Device<'_>, uuid: &GpuUuid) -> Vec<Sign> {
        let what = || format!("read the health of GPU {uuid}");
        let ids = FIELDS.map(|(_, id)| FieldId(id));
        let asked = self.ask("nvmlDeviceGetFieldValues", &what, || {
            device.field_values_for(&ids)
        });
        let values = match asked {
            Ok(values) => values,
            Err(e) => match e.code() {
                Some(code @ (GPU_IS_LOST | RESET_REQUIRED)) => {
                    return vec![sign(SignKind::Lost, code)];
                }
                Some(NOT_SUPPORTED | FUNCTION_NOT_FOUND) => return Vec::new(),
                _ => {
                    tracing::warn!("nobody knows whether it is sick: {e}");
                    return Vec::new();
                }
            },
        };
        let mut signs = Vec::new();
        for ((kind, _), value) in FIELDS.into_iter().zip(values) {
            let amount = match value.and_then(|sample| sample.value) {
                Ok(SampleValue::U32(amount)) => u64::from(amount),
                Ok(SampleValue::U64(amount)) => amount,
                Err(NvmlError::GpuLost) => return vec![sign(SignKind::Lost, GPU_IS_LOST)],
                Err(NvmlError::ResetRequired) => return vec![sign(SignKind::Lost, RESET_REQUIRED)],
                Ok(_) | Err(_) => 0,
            };
            signs.extend((amount > 0).then_some(Sign { kind, amount }));
        }
        signs
    }

    pub(super) fn fabric_is_down(&self, device: &Device<'_>, uuid: &GpuUuid) -> Result<bool> {
        // Drivers before 545 lack it.
        if self.nvml()?.lib().nvmlDeviceGetGpuFabricInfoV.is_err() {
            return Ok(false);
        }
        // SAFETY: a struct of integers, for which zeros are a value.
        let mut info: sys::nvmlGpuFabricInfo_v2_t = unsafe { std::mem::zeroed() };
        info.version = size_of_val(&info) as u32 | 2 << 24;
        let what = || format!("read the fabric of GPU {uuid}");
        // The function takes each version of the struct.
        let any = (&raw mut info).cast();
        let asked = call!(self, what, nvmlDeviceGetGpuFabricInfoV(raw(device), any));
        Ok(asked.is_ok() && is_down(u32::from(info.state), info.status))
    }
}

/// The status counts alone once the registration is complete. A GPU without a fabric is in state 0.
fn is_down(state: u32, status: sys::nvmlReturn_t) -> bool {
    match state {
        sys::NVML_GPU_FABRIC_STATE_NOT_STARTED | sys::NVML_GPU_FABRIC_STATE_IN_PROGRESS => true,
        sys::NVML_GPU_FABRIC_STATE_COMPLETED => status != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_layout_of_header() {
        assert_eq!(size_of::<sys::nvmlGpuFabricInfo_v2_t>(), 36);
    }

    #[test]
    fn fabric_is_down_until_it_is_registered_well() {
        let down: Vec<bool> = (0..=3).map(|state| is_down(state, 0)).collect();
        assert_eq!(down, [false, true, true, false]);
        assert!(is_down(3, 999) && !is_down(0, 999));
    }
}
