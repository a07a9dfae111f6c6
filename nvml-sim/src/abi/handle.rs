//! Handles: what they stand for, in the bits of a pointer that leads nowhere.
//!
//! Each call checks a handle against the machine. One that was never given out is an invalid
//! argument; one whose instance is gone, even if another has its id by now, is not found.

use super::pointers::Plain;
use crate::engine::{Code, ComputeInstance, Gpu, GpuInstance, Machine, MigDevice};

#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle(u64);

impl Plain for Handle {}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Kind {
    Gpu = 1,
    GpuInstance = 2,
    ComputeInstance = 3,
    MigDevice = 4,
}

const GENERATION_BITS: u32 = 36;

impl Handle {
    fn new(kind: Kind, gpu: u32, gi: u32, ci: u32, generation: u64) -> Handle {
        let part = |value: u32, byte: u32| u64::from(value & 0xff) << (GENERATION_BITS + 8 * byte);
        let generation = generation & ((1 << GENERATION_BITS) - 1);
        Handle((kind as u64) << 60 | part(gpu, 2) | part(gi, 1) | part(ci, 0) | generation)
    }

    /// Returns the handle as a client sees it.
    pub fn bits(self) -> u64 {
        self.0
    }

    pub fn of_gpu(gpu: u32) -> Handle {
        Handle::new(Kind::Gpu, gpu, 0, 0, 0)
    }

    pub fn of_gpu_instance(gpu: u32, gi: &GpuInstance) -> Handle {
        Handle::new(Kind::GpuInstance, gpu, gi.id, 0, gi.generation)
    }

    pub fn of_compute_instance(gpu: u32, gi: u32, ci: &ComputeInstance) -> Handle {
        Handle::new(Kind::ComputeInstance, gpu, gi, ci.id, ci.generation)
    }

    pub fn of_mig_device(gpu: u32, MigDevice { gi, ci, .. }: &MigDevice) -> Handle {
        Handle::new(Kind::MigDevice, gpu, gi.id, ci.id, ci.generation)
    }

    fn is(self, kind: Kind) -> bool {
        self.0 >> 60 == kind as u64
    }

    fn part(self, byte: u32) -> u32 {
        (self.0 >> (GENERATION_BITS + 8 * byte)) as u32 & 0xff
    }

    /// The index of the GPU that it is or is part of, for what is locked before it is checked.
    pub fn gpu_index(self) -> u32 {
        self.part(2)
    }

    fn check_generation(self, generation: u64) -> Result<(), Code> {
        let is_it = self == Handle(self.0 >> GENERATION_BITS << GENERATION_BITS | generation);
        is_it.then_some(()).ok_or(Code::NOT_FOUND)
    }

    fn found(self, machine: &Machine, kind: Kind) -> Result<&Gpu, Code> {
        if !self.is(kind) {
            return Err(Code::INVALID_ARGUMENT);
        }
        machine.gpu(self.gpu_index())
    }

    /// A whole GPU, and nothing else.
    pub fn gpu(self, machine: &Machine) -> Result<&Gpu, Code> {
        let gpu = self.found(machine, Kind::Gpu)?;
        let is_whole = self == Handle::of_gpu(self.gpu_index());
        is_whole.then_some(gpu).ok_or(Code::INVALID_ARGUMENT)
    }

    pub fn gpu_instance(self, machine: &Machine) -> Result<(&Gpu, &GpuInstance), Code> {
        let gpu = self.found(machine, Kind::GpuInstance)?;
        let gi = gpu.gpu_instance(self.part(1))?;
        self.check_generation(gi.generation)?;
        Ok((gpu, gi))
    }

    pub fn compute_instance(self, machine: &Machine) -> Result<MigDevice<'_>, Code> {
        self.instance(machine, Kind::ComputeInstance)
    }

    pub fn mig_device(self, machine: &Machine) -> Result<MigDevice<'_>, Code> {
        self.instance(machine, Kind::MigDevice)
    }

    fn instance(self, machine: &Machine, kind: Kind) -> Result<MigDevice<'_>, Code> {
        let gpu = self.found(machine, kind)?;
        let gi = gpu.gpu_instance(self.part(1))?;
        let ci = gi.compute_instance(self.part(0))?;
        self.check_generation(ci.generation)?;
        Ok(MigDevice { gpu, gi, ci })
    }

    /// A GPU or a MIG device: what most device calls take.
    pub fn device(self, machine: &Machine) -> Result<Device<'_>, Code> {
        if self.is(Kind::MigDevice) {
            self.mig_device(machine).map(Device::Mig)
        } else {
            self.gpu(machine).map(Device::Gpu)
        }
    }
}

pub enum Device<'a> {
    Gpu(&'a Gpu),
    Mig(MigDevice<'a>),
}

impl<'a> Device<'a> {
    /// The GPU that it is or is part of.
    pub fn gpu(&self) -> &'a Gpu {
        match self {
            Device::Gpu(gpu) => gpu,
            Device::Mig(mig) => mig.gpu,
        }
    }
}
