//! The GPU memory of one process on one GPU.

use std::io;

use nvml_sim::engine::{Holder, HolderKind, Target};
use nvml_sim::holders::{self, Refusal};
use nvml_sim::state::Store;

use crate::error::CudaError;

/// The memory of a process, which the machine lists while the account is open.
pub struct Account {
    holder: Holder,
    /// Bytes that the process may use, its contexts included.
    limit: Option<u64>,
    /// Whether the machine lists the process: a caller without write access cannot list any.
    listed: bool,
}

impl Account {
    /// Opens an account without memory. The process is listed with its first memory.
    pub fn new(gpu: u32, pid: u32, start_time: u64, kind: HolderKind) -> Account {
        let target = Target {
            gpu,
            gi: None,
            ci: None,
        };
        let holder = Holder {
            pid,
            start_time,
            target,
            memory: 0,
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
    /// The limit or the GPU has too little left, or the GPU's compute mode excludes the process.
    pub fn grow(&mut self, store: &Store, bytes: u64) -> Result<(), CudaError> {
        let memory = self.holder.memory.checked_add(bytes);
        let memory = memory.ok_or(CudaError::OUT_OF_MEMORY)?;
        if self.limit.is_some_and(|limit| memory > limit) {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.set(store, memory)
    }

    /// Gives memory back.
    pub fn shrink(&mut self, store: &Store, bytes: u64) -> Result<(), CudaError> {
        self.set(store, self.holder.memory.saturating_sub(bytes))
    }

    fn set(&mut self, store: &Store, memory: u64) -> Result<(), CudaError> {
        let wanted = Holder {
            memory,
            ..self.holder.clone()
        };
        match holders::list(store, wanted, false) {
            Ok(_) => self.listed = true,
            Err(Refusal::Io(error)) if is_read_only(&error) => {
                let more = memory.saturating_sub(self.holder.memory);
                if more > self.free_of_gpu(store)? {
                    return Err(CudaError::OUT_OF_MEMORY);
                }
            }
            Err(refusal) => return Err(refusal.into()),
        }
        self.holder.memory = memory;
        Ok(())
    }

    /// Returns the bytes that the process can still have.
    pub fn free(&self, store: &Store) -> Result<u64, CudaError> {
        let of_gpu = self.free_of_gpu(store)?;
        let memory = self.holder.memory;
        let of_limit = self.limit.map_or(u64::MAX, |l| l.saturating_sub(memory));
        Ok(of_gpu.min(of_limit))
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
