//! Events, of which there are none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::handle::Handle;
use super::nvml;
use super::pointers::Out;
use super::types::EventData;
use crate::engine::Code;

/// Event sets need nothing but to be told apart from none.
static NEXT_SET: AtomicU64 = AtomicU64::new(1);

fn check_set(set: u64) -> Result<(), Code> {
    if set == 0 || set >= NEXT_SET.load(Ordering::Relaxed) {
        return Err(Code::INVALID_ARGUMENT);
    }
    Ok(())
}

nvml! {
    fn nvmlEventSetCreate(_, set: Out<u64>) {
        set.check()?;
        set.put(NEXT_SET.fetch_add(1, Ordering::Relaxed))
    }

    fn nvmlEventSetFree(_, set: u64) {
        check_set(set)
    }

    fn nvmlDeviceRegisterEvents(call, device: Handle, _types: u64, set: u64) {
        device.device(&*call.machine()?)?;
        check_set(set)
    }

    // Single-bit and double-bit errors, state changes, critical Xid errors, clock changes.
    fn nvmlDeviceGetSupportedEventTypes(call, device: Handle, types: Out<u64>) {
        device.device(&*call.machine()?)?;
        types.put(0x1f)
    }

    fn nvmlEventSetWait(_, set: u64, data: Out<EventData>, timeout_ms: u32) as nvmlEventSetWait_v2 {
        // Nothing ever happens, so it always takes the whole time.
        check_set(set)?;
        data.check()?;
        sleep(Duration::from_millis(timeout_ms.into()));
        Err(Code::TIMEOUT)
    }
}
