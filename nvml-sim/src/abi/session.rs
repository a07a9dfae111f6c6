//! `nvmlInit` and `nvmlShutdown`: counted, and with a file of the machine open in between, since a
//! client's descriptors are what others must not inherit.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::guard;
use super::nvml;
use crate::engine::Code;
use crate::state::{self, Store};
use crate::sys;

struct Session {
    store: Arc<Store>,
    count: u32,
    _file: Option<File>,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

fn session() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The machine of this process's session.
pub fn current() -> Option<Arc<Store>> {
    session().as_ref().map(|s| s.store.clone())
}

/// The machine's directory: what `NVML_SIM_DIR` says, or the one in whose `lib` we are.
pub fn machine_dir() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("NVML_SIM_DIR") {
        return Some(dir.into());
    }
    let library = sys::own_path()?.canonicalize().ok()?;
    Some(library.parent()?.parent()?.to_path_buf())
}

/// Opens a session or counts one more.
fn open(dir: &Path) -> Result<(), Code> {
    let mut session = session();
    if let Some(session) = &mut *session {
        session.count += 1;
        return Ok(());
    }
    let store = Store::open(dir).map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => Code::NO_PERMISSION,
        _ => Code::DRIVER_NOT_LOADED,
    })?;
    // A caller that may not write leaves that to the next one that may.
    let _ = store.settle();
    *session = Some(Session {
        store: Arc::new(store),
        count: 1,
        _file: File::open(dir.join(state::SESSION)).ok(),
    });
    Ok(())
}

/// The functions that open a session run without one, so they find the machine by themselves.
macro_rules! init {
    ($($name:ident($($arg:ident: $ty:ty)?);)*) => {
        pub(super) const INIT_FUNCTIONS: &[&str] = &[$(stringify!($name)),*];
        $(
        // SAFETY: NVML's own names; no other library of a process defines them.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name($($arg: $ty)?) -> u32 {
            // No flag changes anything here: there is always a GPU, and none to attach to.
            $(let _ = $arg;)?
            let Some(dir) = machine_dir() else { return Code::DRIVER_NOT_LOADED.0 };
            guard::run(&dir, stringify!($name), |_| open(&dir))
        }
        )*
    };
}

init! {
    nvmlInit();
    nvmlInit_v2();
    nvmlInitWithFlags(flags: u32);
}

nvml! {
    fn nvmlShutdown(_) {
        let mut session = session();
        if let Some(open) = &mut *session {
            open.count -= 1;
            if open.count == 0 {
                *session = None;
            }
        }
        Ok(())
    }
}
