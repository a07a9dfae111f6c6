//! Memory limits by cgroup, which drivers have from 615 on.
//!
//! A cgroup is known by its inode, which the kernel never gives to a second one. So a limit ends
//! with its cgroup, and a new cgroup of the same name has none.

use serde::{Deserialize, Serialize};

use super::machine::{Holder, Machine};

/// The first release branch of the driver with memory limits by cgroup.
pub const MEMORY_LIMITS_SINCE: u32 = 615;

/// The hard limit of a cgroup without limits; its soft limit is 0.
pub const UNLIMITED: u64 = u64::MAX;

/// The keeper of memory limits. The driver chooses it when it loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LimitBackend {
    /// The kernel's controller `dmem`: a process keeps the limits of all cgroups above it.
    Dmem,
    /// The driver itself: a process keeps the limit of the nearest limited cgroup alone.
    #[default]
    Misc,
}

/// The limits of a cgroup on a GPU, in bytes.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct MemoryLimit {
    pub gpu: u32,
    /// The path below the root of the hierarchy. Nothing looks a limit up by it.
    pub cgroup: String,
    pub inode: u64,
    pub soft: u64,
    pub hard: u64,
}

impl Holder {
    /// Returns the bytes that limits by cgroup count: they leave managed memory out.
    pub fn limited_memory(&self) -> u64 {
        self.memory.saturating_sub(self.managed)
    }
}

impl Machine {
    pub fn memory_limit(&self, gpu: u32, inode: u64) -> Option<&MemoryLimit> {
        let mut limits = self.memory_limits.iter();
        limits.find(|limit| limit.gpu == gpu && limit.inode == inode)
    }

    /// Sets the limits of a cgroup, or removes them if they limit nothing.
    pub fn set_memory_limit(&mut self, limit: MemoryLimit) {
        let is_same = |it: &MemoryLimit| (it.gpu, it.inode) == (limit.gpu, limit.inode);
        self.memory_limits.retain(|it| !is_same(it));
        if (limit.soft, limit.hard) != (0, UNLIMITED) {
            self.memory_limits.push(limit);
        }
    }

    /// Returns the limits that a process keeps, the nearest first. `cgroups` has the inodes of its
    /// cgroup and of those above.
    pub fn binding_limits(&self, gpu: u32, cgroups: &[u64]) -> Vec<&MemoryLimit> {
        let most = match self.limit_backend {
            LimitBackend::Dmem => usize::MAX,
            LimitBackend::Misc => 1,
        };
        let limits = cgroups.iter().filter_map(|i| self.memory_limit(gpu, *i));
        limits.take(most).collect()
    }

    /// Returns the limit that CUDA shows to a process as the size of the GPU. With dmem it is that
    /// of the process's own cgroup: those above are kept and not shown.
    pub fn visible_limit(&self, gpu: u32, cgroups: &[u64]) -> Option<&MemoryLimit> {
        match self.limit_backend {
            LimitBackend::Dmem => self.memory_limit(gpu, *cgroups.first()?),
            LimitBackend::Misc => self.binding_limits(gpu, cgroups).first().copied(),
        }
    }

    /// Returns whether the memory of a process counts as used by a cgroup.
    pub fn is_charged(&self, inode: u64, holder: &Holder) -> bool {
        match self.limit_backend {
            LimitBackend::Dmem => holder.cgroups.contains(&inode),
            LimitBackend::Misc => {
                let binding = self.binding_limits(holder.target.gpu, &holder.cgroups);
                binding.iter().any(|limit| limit.inode == inode)
            }
        }
    }
}
