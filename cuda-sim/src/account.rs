//! The GPU memory of one process on one GPU.

use std::io;
use std::ops::Add;

use nvml_sim::cgroups;
use nvml_sim::engine::{Holder, HolderKind, Target};
use nvml_sim::holders::{self, Refusal};
use nvml_sim::state::Store;
use serde::{Deserialize, Serialize};

use crate::error::CudaError;

/// An amount of memory in bytes. Limits by cgroup leave managed memory out.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize, Serialize)]
pub struct Size {
    pub plain: u64,
    pub managed: u64,
}

impl Size {
    pub fn plain(plain: u64) -> Size {
        let managed = 0;
        Size { plain, managed }
    }

    pub fn managed(managed: u64) -> Size {
        let plain = 0;
        Size { plain, managed }
    }

    pub fn total(self) -> u64 {
        self.plain.saturating_add(self.managed)
    }

    fn saturating_sub(self, other: Size) -> Size {
        Size {
            plain: self.plain.saturating_sub(other.plain),
            managed: self.managed.saturating_sub(other.managed),
        }
    }
}

/// A sum that is too large for any GPU stays too large.
impl Add for Size {
    type Output = Size;

    fn add(self, other: Size) -> Size {
        Size {
            plain: self.plain.saturating_add(other.plain),
            managed: self.managed.saturating_add(other.managed),
        }
    }
}

/// The memory of a process, which the machine lists while the account is open.
pub struct Account {
    holder: Holder,
    /// Bytes that the process may use by MPS, its contexts included.
    limit: Option<u64>,
    /// Whether the machine lists the process: a caller without write access cannot list any.
    listed: bool,
}

impl Account {
    /// Opens an account without memory. The process is listed with its first memory.
    pub fn new(target: Target, pid: u32, start_time: u64, kind: HolderKind) -> Account {
        let holder = Holder {
            pid,
            start_time,
            target,
            memory: 0,
            managed: 0,
            cgroups: Vec::new(),
            kind,
        };
        Account {
            holder,
            limit: None,
            listed: false,
        }
    }

    /// Sets the limit, which later changes of the memory must keep.
    pub fn limited(mut self, limit: Option<u64>) -> Account {
        self.limit = limit;
        self
    }

    /// Adds memory.
    ///
    /// # Errors
    /// A limit or the GPU has too little left, or the GPU's compute mode excludes the process.
    pub fn grow(&mut self, store: &Store, size: Size) -> Result<(), CudaError> {
        let wanted = self.size() + size;
        if self.limit.is_some_and(|limit| wanted.total() > limit) {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.set(store, wanted)
    }

    /// Gives memory back.
    pub fn shrink(&mut self, store: &Store, size: Size) -> Result<(), CudaError> {
        self.set(store, self.size().saturating_sub(size))
    }

    fn size(&self) -> Size {
        Size {
            plain: self.holder.limited_memory(),
            managed: self.holder.managed,
        }
    }

    fn set(&mut self, store: &Store, size: Size) -> Result<(), CudaError> {
        let wanted = Holder {
            memory: size.total(),
            managed: size.managed,
            cgroups: self.cgroups(store),
            ..self.holder.clone()
        };
        match holders::list(store, wanted.clone(), false) {
            Ok(_) => self.listed = true,
            Err(Refusal::Io(error)) if is_read_only(&error) => {
                self.check_unlisted(store, &wanted)?
            }
            Err(refusal) => return Err(refusal.into()),
        }
        self.holder = wanted;
        Ok(())
    }

    /// Checks whether memory fits that the machine cannot list.
    fn check_unlisted(&self, store: &Store, wanted: &Holder) -> Result<(), CudaError> {
        let machine = store.load().map_err(|_| CudaError::UNKNOWN)?;
        let gpu = wanted.target.gpu;
        let under_limits = holders::free_under_limits(store.dir(), &machine, gpu, &wanted.cgroups);
        let more = wanted.memory.saturating_sub(self.holder.memory);
        let grows = wanted.limited_memory() > self.holder.limited_memory();
        let is_limited = grows && wanted.limited_memory() > under_limits;
        match is_limited || more > self.free_of_gpu(store)? {
            true => Err(CudaError::OUT_OF_MEMORY),
            false => Ok(()),
        }
    }

    fn cgroups(&self, store: &Store) -> Vec<u64> {
        cgroups::of_process(&holders::proc_dir(store.dir()), self.holder.pid)
    }

    /// Returns the bytes that the process can still have.
    pub fn free(&self, store: &Store) -> Result<u64, CudaError> {
        let of_gpu = self.free_of_gpu(store)?;
        let memory = self.holder.memory;
        let of_limit = self.limit.map_or(u64::MAX, |l| l.saturating_sub(memory));
        Ok(of_gpu.min(of_limit).min(self.free_of_cgroup(store)?))
    }

    /// Returns the rest under the limit that CUDA shows as the size of the GPU.
    fn free_of_cgroup(&self, store: &Store) -> Result<u64, CudaError> {
        let machine = store.load().map_err(|_| CudaError::UNKNOWN)?;
        let gpu = self.holder.target.gpu;
        let Some(limit) = machine.visible_limit(gpu, &self.cgroups(store)) else {
            return Ok(u64::MAX);
        };
        let listed = holders::used_in_cgroup(store.dir(), &machine, gpu, limit.inode);
        let unlisted = if self.listed { 0 } else { self.size().plain };
        Ok(limit.hard.saturating_sub(listed.saturating_add(unlisted)))
    }

    fn free_of_gpu(&self, store: &Store) -> Result<u64, CudaError> {
        let machine = store.load().map_err(|_| CudaError::UNKNOWN)?;
        let free = holders::free(store.dir(), &machine, self.holder.target);
        let unlisted = if self.listed { 0 } else { self.holder.memory };
        Ok(free.saturating_sub(unlisted))
    }

    /// Takes the process off the machine's list. A dead process needs no call: the list leaves it
    /// out by itself.
    pub fn close(&self, store: &Store) {
        if self.listed {
            let _ = holders::unlist(store, &self.holder);
        }
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}
