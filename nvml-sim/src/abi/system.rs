//! The questions about the driver as a whole.

use std::ffi::c_char;
use std::fs;

use super::nvml;
use super::pointers::Out;
use crate::engine::Code;

/// The table that nvidia-smi asks for before anything else: it wants to see that library and
/// program belong together, and goes on without the table itself.
const EXPORT_TABLE: [u8; 16] = [
    0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
];

nvml! {
    fn nvmlSystemGetDriverVersion(call, version: Out<u8>, length: u32) {
        version.put_text(length, &call.machine()?.driver.version)
    }

    fn nvmlSystemGetNVMLVersion(call, version: Out<u8>, length: u32) {
        let machine = call.machine()?;
        version.put_text(length, &format!("{}.{}", machine.driver.cuda / 1000, machine.driver.version))
    }

    fn nvmlSystemGetCudaDriverVersion(call, version: Out<i32>) as nvmlSystemGetCudaDriverVersion_v2 {
        version.put(call.machine()?.driver.cuda as i32)
    }

    fn nvmlSystemGetProcessName(_, pid: u32, name: Out<u8>, length: u32) {
        let command = fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Code::NOT_FOUND)?;
        let program = command.split(|b| *b == 0).next().unwrap_or_default();
        name.check()?;
        // NVML cuts a name short where the buffer is.
        let end = program.len().min((length as usize).saturating_sub(1));
        name.put_bytes(length, &program[..end])
    }

    fn nvmlGetExcludedDeviceCount(_, count: Out<u32>) {
        count.put(0)
    }

    fn nvmlInternalGetExportTable(_, table: Out<usize>, id: Out<u8>) {
        for (offset, byte) in EXPORT_TABLE.iter().enumerate() {
            if id.at(offset).get()? != *byte {
                return Err(Code::NOT_FOUND);
            }
        }
        table.put(0)
    }
}

/// The words for a return code; it needs no session and cannot fail.
// SAFETY: NVML's own name; no other library of a process defines it.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn nvmlErrorString(result: u32) -> *const c_char {
    crate::engine::c_words(result).as_ptr()
}
