//! CUDA in the process of a client, with an MPS daemon or without: one context on one device.

mod mps;
pub mod visible;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nvml_sim::cgroups;
use nvml_sim::engine::{HolderKind, Machine, Target};
use nvml_sim::holders::{self, Hold};
use nvml_sim::state::Store;

use crate::account::{Account, Size};
use crate::error::CudaError;
use crate::mps::kernel_end;
use crate::protocol::{Kernel, Reply, Request};
use mps::Connection;

/// The time after which a process that waits for a kernel looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// CUDA after `cuInit`, on the first device that the process sees.
pub struct Cuda {
    store: Store,
    target: Target,
    /// UUIDs of the devices that the process sees.
    visible: Vec<String>,
    mode: Mode,
    hold: Option<Hold>,
    has_context: bool,
    /// Sizes by address.
    allocations: BTreeMap<u64, Size>,
    /// The next address: none is given out twice.
    next: u64,
    /// The error that ended the work of this process.
    error: Option<CudaError>,
}

enum Mode {
    Mps(Connection),
    Plain {
        account: Account,
        kernel_end: Option<Instant>,
        fault: bool,
    },
}

static CUDA: Mutex<Option<Cuda>> = Mutex::new(None);

fn global() -> MutexGuard<'static, Option<Cuda>> {
    CUDA.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the machine and finds the GPUs, once in a process.
pub fn init() -> Result<(), CudaError> {
    let mut cuda = global();
    if cuda.is_none() {
        *cuda = Some(Cuda::new()?);
    }
    Ok(())
}

/// Acts on CUDA after `cuInit`.
pub fn with<T>(act: impl FnOnce(&mut Cuda) -> Result<T, CudaError>) -> Result<T, CudaError> {
    act(global().as_mut().ok_or(CudaError::NOT_INITIALIZED)?)
}

/// Waits for the end of the kernels of this process.
pub fn synchronize() -> Result<(), CudaError> {
    while with(Cuda::is_busy)? {
        sleep(LOOK_AGAIN);
    }
    Ok(())
}

fn open_machine() -> Result<Store, CudaError> {
    let dir = nvml_sim::abi::machine_dir().ok_or(CudaError::NO_DEVICE)?;
    Store::open(&dir).map_err(|_| CudaError::NO_DEVICE)
}

/// Returns this process as the host numbers it.
fn host_pid(proc_dir: &Path) -> u32 {
    let own = std::fs::read_link(proc_dir.join("self")).unwrap_or_else(|_| PathBuf::new());
    let own = own.to_str().and_then(|pid| pid.parse().ok());
    own.unwrap_or_else(std::process::id)
}

impl Cuda {
    fn new() -> Result<Cuda, CudaError> {
        let store = open_machine()?;
        let machine = store.load().map_err(|_| CudaError::UNKNOWN)?;
        let permitted = visible::permitted(store.dir(), &machine)?;
        let connection = Connection::open()?;
        let of_process = permitted.iter().map(|device| device.uuid.clone());
        let all: Vec<String> = match &connection {
            Some(connection) => {
                let own: Vec<String> = of_process.collect();
                let served = connection.devices.iter();
                served.filter(|uuid| own.contains(uuid)).cloned().collect()
            }
            None => of_process.collect(),
        };
        let variable = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let visible = visible::chosen(&all, variable.as_deref());
        let device = permitted.iter().find(|d| Some(&d.uuid) == visible.first());
        let target = device.ok_or(CudaError::NO_DEVICE)?.target;
        let mode = match connection {
            Some(connection) => Mode::Mps(connection),
            None => Mode::Plain {
                account: plain_account(&store, target),
                kernel_end: None,
                fault: false,
            },
        };
        Ok(Cuda {
            store,
            target,
            visible,
            mode,
            hold: None,
            has_context: false,
            allocations: BTreeMap::new(),
            next: 0x7f00_0000_0000,
            error: None,
        })
    }

    fn machine(&self) -> Result<Arc<Machine>, CudaError> {
        self.store.load().map_err(|_| CudaError::UNKNOWN)
    }

    /// Acts unless an earlier error has ended the work. After such an error CUDA answers nothing else in this process.
    fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Cuda) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        const LASTING: [CudaError; 3] = [
            CudaError::ILLEGAL_ADDRESS,
            CudaError::MPS_RPC_FAILURE,
            CudaError::MPS_CLIENT_TERMINATED,
        ];
        self.error.map_or(Ok(()), Err)?;
        let result = act(self);
        self.error = { result.as_ref().err().copied() }.filter(|e| LASTING.contains(e));
        result
    }

    /// Acts in the context.
    fn in_context<T>(
        &mut self,
        act: impl FnOnce(&mut Cuda) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        self.act(|cuda| match cuda.has_context {
            true => act(cuda),
            false => Err(CudaError::INVALID_CONTEXT),
        })
    }

    /// Makes the context, which takes memory.
    pub fn make_context(&mut self) -> Result<(), CudaError> {
        self.act(|cuda| {
            let target = cuda.target;
            let size = cuda.machine()?.gpus[target.gpu as usize].model().context_mb << 20;
            match &mut cuda.mode {
                Mode::Mps(connection) => connection.make_context(&cuda.visible)?,
                Mode::Plain { account, .. } => account.grow(&cuda.store, Size::plain(size))?,
            }
            // A process that may not read the file holds nothing, and needs it for nothing else.
            cuda.hold = holders::lock_files_of(&cuda.store, target).ok();
            cuda.has_context = true;
            Ok(())
        })
    }

    /// Allocates memory and returns its address. Nothing is behind the address.
    pub fn allocate(&mut self, size: Size) -> Result<u64, CudaError> {
        self.in_context(|cuda| {
            if size == Size::default() {
                return Err(CudaError::INVALID_VALUE);
            }
            match &mut cuda.mode {
                Mode::Mps(connection) => drop(connection.ask(&Request::Allocate(size))?),
                Mode::Plain { account, .. } => account.grow(&cuda.store, size)?,
            }
            let address = cuda.next;
            cuda.next += size.total().next_multiple_of(512);
            cuda.allocations.insert(address, size);
            Ok(address)
        })
    }

    pub fn free(&mut self, address: u64) -> Result<(), CudaError> {
        self.in_context(|cuda| {
            let size = cuda.allocations.remove(&address);
            let size = size.ok_or(CudaError::INVALID_VALUE)?;
            match &mut cuda.mode {
                Mode::Mps(connection) => connection.ask(&Request::Free(size)).map(drop),
                Mode::Plain { account, .. } => account.shrink(&cuda.store, size),
            }
        })
    }

    /// Returns the free and the total bytes. A limit of MPS shows in the free bytes alone, one of
    /// the process's cgroup in both.
    pub fn memory(&mut self) -> Result<(u64, u64), CudaError> {
        self.in_context(|cuda| {
            let machine = cuda.machine()?;
            let free = match &mut cuda.mode {
                Mode::Mps(connection) => match connection.ask(&Request::Memory)? {
                    Reply::Bytes(bytes) => bytes,
                    _ => return Err(CudaError::UNKNOWN),
                },
                Mode::Plain { account, .. } => account.free(&cuda.store)?,
            };
            let proc_dir = holders::proc_dir(cuda.store.dir());
            let cgroups = cgroups::of_process(&proc_dir, host_pid(&proc_dir));
            let limit = machine.visible_limit(cuda.target.gpu, &cgroups);
            let whole = visible::memory(&machine, cuda.target);
            Ok((free, limit.map_or(whole, |limit| limit.hard.min(whole))))
        })
    }

    pub fn launch(&mut self, kernel: Kernel) -> Result<(), CudaError> {
        self.in_context(|cuda| match &mut cuda.mode {
            Mode::Mps(connection) => connection.ask(&Request::Launch(kernel)).map(drop),
            Mode::Plain {
                kernel_end: end,
                fault,
                ..
            } => {
                let now = Instant::now();
                match kernel {
                    Kernel::Spin(time) => {
                        *end = Some(kernel_end(end.map_or(now, |e| e.max(now)), time))
                    }
                    Kernel::Fault => *fault = true,
                }
                Ok(())
            }
        })
    }

    fn is_busy(&mut self) -> Result<bool, CudaError> {
        self.in_context(|cuda| match &mut cuda.mode {
            Mode::Mps(connection) => {
                let reply = connection.ask(&Request::Synchronize)?;
                Ok(matches!(reply, Reply::Busy))
            }
            Mode::Plain { fault: true, .. } => Err(CudaError::ILLEGAL_ADDRESS),
            Mode::Plain { kernel_end, .. } => {
                Ok(kernel_end.is_some_and(|end| end > Instant::now()))
            }
        })
    }
}

fn plain_account(store: &Store, target: Target) -> Account {
    let proc_dir = holders::proc_dir(store.dir());
    let pid = host_pid(&proc_dir);
    let start_time = holders::start_time(&proc_dir, pid).unwrap_or(0);
    Account::new(target, pid, start_time, HolderKind::Plain)
}
