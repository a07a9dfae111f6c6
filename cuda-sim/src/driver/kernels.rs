//! Modules, their kernels, and the time that kernels take.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Cuda, Mode, with};
use crate::error::CudaError;
use crate::mps::kernel_end;
use crate::protocol::{Kernel, Reply, Request};

/// The time after which a process that waits for a kernel looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

impl Cuda {
    /// Loads a module: the text of PTX, of which the names of the kernels matter.
    pub fn load_module(&mut self, image: &str) -> Result<u64, CudaError> {
        if !image.contains(".version") {
            return Err(CudaError::INVALID_IMAGE);
        }
        let id = self.next(0);
        self.modules.insert(id, image.to_owned());
        Ok(id)
    }

    pub fn function(&mut self, module: u64, name: &str) -> Result<u64, CudaError> {
        let image = self.modules.get(&module);
        let image = image.ok_or(CudaError::INVALID_VALUE)?;
        let mut entries = image.split(".entry").skip(1);
        let name_of = |entry: &str| {
            let end = entry
                .trim_start()
                .split(|c: char| c == '(' || c.is_whitespace());
            end.map(str::to_owned).next()
        };
        if !entries.any(|entry| name_of(entry).as_deref() == Some(name)) {
            return Err(CudaError::NOT_FOUND);
        }
        let id = self.next(0);
        self.functions.insert(id, name.to_owned());
        Ok(id)
    }

    pub fn function_name(&self, function: u64) -> Option<&str> {
        self.functions.get(&function).map(String::as_str)
    }

    pub fn launch(&mut self, kernel: Kernel) -> Result<(), CudaError> {
        self.act(|cuda| match &mut cuda.mode {
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
        self.act(|cuda| match &mut cuda.mode {
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

/// Waits for the end of the kernels of this process.
pub fn synchronize(context: u64) -> Result<(), CudaError> {
    with(|cuda| cuda.gpu_of(context).map(drop))?;
    while with(Cuda::is_busy)? {
        sleep(LOOK_AGAIN);
    }
    Ok(())
}
