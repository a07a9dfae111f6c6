//! The frame of every call: faults, the trace, the time it takes, panics.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use super::session;
use crate::engine::{Code, Holds, Machine};
use crate::fault::{self, Moment, Outcome};
use crate::state::Store;
use crate::{driver_root, sys, trace};

/// A call in progress.
pub struct Call {
    store: Option<Arc<Store>>,
    /// The simulated time that it has yet to take.
    takes: Cell<Duration>,
    outcome: Option<Outcome>,
}

/// A call inside a session.
pub fn call(name: &'static str, body: impl FnOnce(&Call) -> Result<(), Code>) -> u32 {
    match session::current() {
        Some(store) => run_with(store.dir(), name, Some(store.clone()), body),
        None => Code::UNINITIALIZED.0,
    }
}

/// Runs a call that needs no session.
pub fn run(dir: &Path, name: &'static str, body: impl FnOnce(&Call) -> Result<(), Code>) -> u32 {
    run_with(dir, name, None, body)
}

fn run_with(
    dir: &Path,
    name: &'static str,
    store: Option<Arc<Store>>,
    body: impl FnOnce(&Call) -> Result<(), Code>,
) -> u32 {
    let began = sys::thread_cpu();
    let is_watched = store.as_ref().is_none_or(|store| store.is_watched());
    let began = (is_watched && trace::is_on(dir)).then_some(began);
    let trace = |end: &str| trace::add(dir, name, began, end);
    // Unreadable rules count as none, since a user without write access must not fail for them.
    let plan = is_watched.then(|| fault::plan(dir, name).unwrap_or_default());
    let plan = plan.unwrap_or_default();
    if plan.outcome == Some(Outcome::Kill(Moment::Before)) {
        trace("killed before");
        sys::kill_self();
    }
    let call = Call {
        store,
        takes: Cell::new(plan.takes),
        outcome: plan.outcome,
    };
    let code = match plan.outcome {
        Some(Outcome::Return(code)) => code,
        _ => match catch_unwind(AssertUnwindSafe(|| body(&call))) {
            Ok(Ok(())) => 0,
            Ok(Err(code)) => code.0,
            Err(_) => Code::UNKNOWN.0,
        },
    };
    call.take_time();
    let code = match plan.outcome {
        Some(Outcome::Kill(_)) => {
            trace(&format!("killed after {code}"));
            sys::kill_self();
        }
        Some(Outcome::ReturnAfter(code)) => code,
        _ => code,
    };
    trace(&code.to_string());
    code
}

impl Call {
    fn take_time(&self) {
        match self.takes.take() {
            Duration::ZERO => {}
            time => sleep(time),
        }
    }

    fn store(&self) -> Result<&Store, Code> {
        self.store.as_deref().ok_or(Code::UNINITIALIZED)
    }

    /// The machine's directory.
    pub fn dir(&self) -> Result<&Path, Code> {
        Ok(self.store()?.dir())
    }

    /// Refuses a call that drivers before a release branch lack. A real one of these lacks the
    /// symbol, which a library that serves every driver cannot.
    pub fn since_branch(&self, first: u32) -> Result<(), Code> {
        let has_it = self.store()?.load()?.driver.branch() >= first;
        has_it.then_some(()).ok_or(Code::FUNCTION_NOT_FOUND)
    }

    /// The machine as it is when the call's time is over.
    pub fn machine(&self) -> Result<Arc<Machine>, Code> {
        self.take_time();
        Ok(self.store()?.load()?)
    }

    /// Returns the machine to a caller that may see its instances. In a user namespace not every caller may.
    pub fn monitored_machine(&self) -> Result<Arc<Machine>, Code> {
        driver_root::may_monitor(self.store()?.dir())?;
        self.machine()
    }

    /// The status that a fault wants `nvmlDeviceSetMigMode` to give out.
    pub fn activation_status(&self) -> Option<u32> {
        match self.outcome {
            Some(Outcome::ActivationStatus(status)) => Some(status),
            _ => None,
        }
    }

    /// Changes a GPU. Changes of one GPU take their time one after the other, those of several at
    /// the same time; only the change itself keeps everybody out.
    pub fn change<T>(
        &self,
        gpu: u32,
        change: impl FnOnce(&mut Machine, &dyn Holds) -> Result<T, Code>,
    ) -> Result<T, Code> {
        let store = self.store()?;
        if !may_change(store.dir()) {
            return Err(Code::NO_PERMISSION);
        }
        store.load()?.gpu(gpu)?;
        let _turn = store.lock_gpu(gpu)?;
        self.take_time();
        let killed = self.outcome == Some(Outcome::Kill(Moment::During));
        store.change(Some(gpu), killed, |machine, files| change(machine, files))
    }
}

/// Root, and in a user namespace where the machine is root's: the kernel asks for the real one.
fn may_change(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    sys::effective_uid() == 0 && dir.metadata().is_ok_and(|m| m.uid() == 0)
}

impl From<io::Error> for Code {
    fn from(error: io::Error) -> Code {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Code::NO_PERMISSION,
            io::ErrorKind::NotFound => Code::DRIVER_NOT_LOADED,
            _ => Code::UNKNOWN,
        }
    }
}
