//! CUDA in the process of a client, with an MPS daemon or without.

mod kernels;
mod mps;
pub mod visible;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nvml_sim::cgroups;
use nvml_sim::engine::{Gpu, HolderKind, Machine, Target};
use nvml_sim::holders::{self, Hold};
use nvml_sim::state::Store;

use crate::account::{Account, Size};
use crate::error::CudaError;
use crate::protocol::{Reply, Request};
pub use kernels::synchronize;
use mps::Connection;

/// CUDA after `cuInit`.
pub struct Cuda {
    store: Store,
    devices: Vec<Device>,
    mode: Mode,
    contexts: BTreeMap<u64, Context>,
    modules: BTreeMap<u64, String>,
    functions: BTreeMap<u64, String>,
    /// The next handle or address: none is given out twice.
    next: u64,
    /// The error that ended the work of this process.
    error: Option<CudaError>,
}

struct Device {
    /// The device in the machine.
    target: Target,
    uuid: String,
    /// The context that all of the process share, and the number of its users.
    primary: Option<(u64, u32)>,
    hold: Option<Hold>,
}

struct Context {
    device: usize,
    /// Sizes by address.
    allocations: BTreeMap<u64, Size>,
}

enum Mode {
    Mps(Connection),
    Plain {
        accounts: BTreeMap<Target, Account>,
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

/// Returns the CUDA version of the machine's driver, which needs no `cuInit`.
pub fn version() -> Result<u32, CudaError> {
    let store = open_machine()?;
    let machine = store.load().map_err(|_| CudaError::UNKNOWN)?;
    Ok(machine.driver.cuda)
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
        let mode = match Connection::open()? {
            Some(connection) => Mode::Mps(connection),
            None => Mode::Plain {
                accounts: BTreeMap::new(),
                kernel_end: None,
                fault: false,
            },
        };
        let is_permitted = |uuid: &&String| permitted.iter().any(|device| device.uuid == **uuid);
        let all: Vec<String> = match &mode {
            Mode::Mps(connection) => connection
                .devices
                .iter()
                .filter(is_permitted)
                .cloned()
                .collect(),
            Mode::Plain { .. } => permitted.iter().map(|d| d.uuid.clone()).collect(),
        };
        let variable = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let chosen = visible::chosen(&all, variable.as_deref());
        let devices = chosen.into_iter().filter_map(|uuid| {
            let device = permitted.iter().find(|device| device.uuid == uuid)?;
            Some(Device {
                target: device.target,
                uuid,
                primary: None,
                hold: None,
            })
        });
        let devices: Vec<Device> = devices.collect();
        if devices.is_empty() {
            return Err(CudaError::NO_DEVICE);
        }
        Ok(Cuda {
            store,
            devices,
            mode,
            contexts: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            next: 0x7f00_0000_0000,
            error: None,
        })
    }

    fn next(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next += bytes.next_multiple_of(512).max(512);
        address
    }

    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    fn device(&self, device: i32) -> Result<(usize, &Device), CudaError> {
        let index = usize::try_from(device).map_err(|_| CudaError::INVALID_DEVICE)?;
        let device = self.devices.get(index).ok_or(CudaError::INVALID_DEVICE)?;
        Ok((index, device))
    }

    /// Answers from the description of a device's GPU.
    pub fn describe<T>(&self, device: i32, get: impl FnOnce(&Gpu) -> T) -> Result<T, CudaError> {
        let (_, device) = self.device(device)?;
        Ok(get(&self.machine()?.gpus[device.target.gpu as usize]))
    }

    fn machine(&self) -> Result<std::sync::Arc<Machine>, CudaError> {
        self.store.load().map_err(|_| CudaError::UNKNOWN)
    }

    /// Remembers an error after which CUDA answers nothing else in this process.
    fn keep<T>(&mut self, result: Result<T, CudaError>) -> Result<T, CudaError> {
        const LASTING: [CudaError; 3] = [
            CudaError::ILLEGAL_ADDRESS,
            CudaError::MPS_RPC_FAILURE,
            CudaError::MPS_CLIENT_TERMINATED,
        ];
        self.error = result
            .as_ref()
            .err()
            .copied()
            .filter(|e| LASTING.contains(e));
        result
    }

    /// Acts unless an earlier error has ended the work.
    fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Cuda) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        self.error.map_or(Ok(()), Err)?;
        let result = act(self);
        self.keep(result)
    }

    /// Makes a context, which takes memory.
    pub fn make_context(&mut self, device: i32) -> Result<u64, CudaError> {
        self.act(|cuda| {
            let (index, device) = cuda.device(device)?;
            let (target, uuid) = (device.target, device.uuid.clone());
            let visible: Vec<String> = cuda.devices.iter().map(|d| d.uuid.clone()).collect();
            let context = cuda.machine()?.gpus[target.gpu as usize].model().context_mb << 20;
            match &mut cuda.mode {
                Mode::Mps(connection) => connection.make_context(&uuid, &visible)?,
                Mode::Plain { accounts, .. } => {
                    let new = || plain_account(&cuda.store, target);
                    let account = accounts.entry(target).or_insert_with(new);
                    account.grow(&cuda.store, Size::plain(context))?;
                }
            }
            // A process that may not read the file holds nothing, and needs it for nothing else.
            let hold = &mut cuda.devices[index].hold;
            *hold = hold
                .take()
                .or_else(|| holders::lock_files_of(&cuda.store, target).ok());
            let id = cuda.next(0);
            let allocations = BTreeMap::new();
            let context = Context {
                device: index,
                allocations,
            };
            cuda.contexts.insert(id, context);
            Ok(id)
        })
    }

    /// Returns the primary context of a device for one more user.
    pub fn retain_primary(&mut self, device: i32) -> Result<u64, CudaError> {
        let (index, known) = self.device(device)?;
        let (context, users) = match known.primary {
            Some((context, users)) => (context, users),
            None => (self.make_context(device)?, 0),
        };
        self.devices[index].primary = Some((context, users + 1));
        Ok(context)
    }

    pub fn release_primary(&mut self, device: i32) -> Result<(), CudaError> {
        let (index, known) = self.device(device)?;
        match known.primary {
            Some((context, 1)) => {
                self.devices[index].primary = None;
                self.destroy_context(context)
            }
            Some((context, users)) => {
                self.devices[index].primary = Some((context, users - 1));
                Ok(())
            }
            None => Err(CudaError::INVALID_CONTEXT),
        }
    }

    pub fn has_context(&self, context: u64) -> bool {
        self.contexts.contains_key(&context)
    }

    /// Gives a context's memory back; with the last one on its GPU the process leaves the GPU.
    pub fn destroy_context(&mut self, context: u64) -> Result<(), CudaError> {
        let gone = self.contexts.remove(&context);
        let gone = gone.ok_or(CudaError::INVALID_CONTEXT)?;
        let device = &self.devices[gone.device];
        let (target, uuid) = (device.target, device.uuid.clone());
        if self.contexts.values().all(|c| c.device != gone.device) {
            self.devices[gone.device].hold = None;
            return match &mut self.mode {
                Mode::Mps(connection) => connection.ask(&Request::Close { uuid }).map(drop),
                Mode::Plain { accounts, .. } => {
                    accounts
                        .remove(&target)
                        .iter()
                        .for_each(|a| a.close(&self.store));
                    Ok(())
                }
            };
        }
        let context = self.machine()?.gpus[target.gpu as usize].model().context_mb << 20;
        let allocated = gone.allocations.values();
        let size = allocated.fold(Size::plain(context), |sum, size| sum + *size);
        self.give_back(target, uuid, size)
    }

    fn give_back(&mut self, target: Target, uuid: String, size: Size) -> Result<(), CudaError> {
        match &mut self.mode {
            Mode::Mps(connection) => connection.ask(&Request::Free { uuid, size }).map(drop),
            Mode::Plain { accounts, .. } => account(accounts, target)?.shrink(&self.store, size),
        }
    }

    fn gpu_of(&self, context: u64) -> Result<(Target, String), CudaError> {
        let context = self.contexts.get(&context);
        let context = context.ok_or(CudaError::INVALID_CONTEXT)?;
        let device = &self.devices[context.device];
        Ok((device.target, device.uuid.clone()))
    }

    /// Allocates memory and returns its address. Nothing is behind the address.
    pub fn allocate(&mut self, context: u64, size: Size) -> Result<u64, CudaError> {
        self.act(|cuda| {
            let (target, uuid) = cuda.gpu_of(context)?;
            if size == Size::default() {
                return Err(CudaError::INVALID_VALUE);
            }
            match &mut cuda.mode {
                Mode::Mps(connection) => {
                    connection.ask(&Request::Allocate { uuid, size })?;
                }
                Mode::Plain { accounts, .. } => {
                    account(accounts, target)?.grow(&cuda.store, size)?
                }
            }
            let address = cuda.next(size.total());
            let context = cuda.contexts.get_mut(&context);
            let context = context.ok_or(CudaError::INVALID_CONTEXT)?;
            context.allocations.insert(address, size);
            Ok(address)
        })
    }

    pub fn free(&mut self, address: u64) -> Result<(), CudaError> {
        self.act(|cuda| {
            let mut contexts = cuda.contexts.values_mut();
            let found = contexts.find_map(|c| Some((c.device, c.allocations.remove(&address)?)));
            let (device, size) = found.ok_or(CudaError::INVALID_VALUE)?;
            let device = &cuda.devices[device];
            let (target, uuid) = (device.target, device.uuid.clone());
            cuda.give_back(target, uuid, size)
        })
    }

    /// Returns the free and the total bytes. A limit of MPS shows in the free bytes alone, one of
    /// the process's cgroup in both.
    pub fn memory(&mut self, context: u64) -> Result<(u64, u64), CudaError> {
        self.act(|cuda| {
            let (target, uuid) = cuda.gpu_of(context)?;
            let machine = cuda.machine()?;
            let free = match &mut cuda.mode {
                Mode::Mps(connection) => match connection.ask(&Request::Memory { uuid })? {
                    Reply::Bytes(bytes) => bytes,
                    _ => return Err(CudaError::UNKNOWN),
                },
                Mode::Plain { accounts, .. } => account(accounts, target)?.free(&cuda.store)?,
            };
            let proc_dir = holders::proc_dir(cuda.store.dir());
            let cgroups = cgroups::of_process(&proc_dir, host_pid(&proc_dir));
            let limit = machine.visible_limit(target.gpu, &cgroups);
            let whole = visible::memory(&machine, target);
            Ok((free, limit.map_or(whole, |limit| limit.hard.min(whole))))
        })
    }
}

fn plain_account(store: &Store, target: Target) -> Account {
    let proc_dir = holders::proc_dir(store.dir());
    let pid = host_pid(&proc_dir);
    let start_time = holders::start_time(&proc_dir, pid).unwrap_or(0);
    Account::new(target, pid, start_time, HolderKind::Plain)
}

fn account(
    accounts: &mut BTreeMap<Target, Account>,
    target: Target,
) -> Result<&mut Account, CudaError> {
    accounts.get_mut(&target).ok_or(CudaError::INVALID_CONTEXT)
}
