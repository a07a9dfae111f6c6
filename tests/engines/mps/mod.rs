//! Shares at `mps`: an MPS daemon for each container, with its limit.

mod daemon;
mod holding;
mod images;
pub mod programs;
mod real_program;
mod records;

use testkit::cuda::{self, Client, free};
use testkit::prelude::*;

/// The memory that a CUDA context takes of a share on an L4, in MiB.
pub const CONTEXT: u64 = 250;
const SHARE: &str = "runmig.dev/share";

pub fn on(low: Low) -> Setup {
    Setup::on(low, Machine::of("--gpu L4 --mig off --mps"))
}

/// The control program of the machine.
pub fn control(setup: &Setup) -> PathBuf {
    setup.machine.dir().join("usr/bin/nvidia-cuda-mps-control")
}

fn asking(setup: &Setup, size: &str) -> Bundle {
    setup.bundle_with(&[(SHARE, size)])
}

/// Starts a container with a share whose client takes commands. Returns its id, its bundle and the client.
fn client(setup: &Setup, size: &str) -> (String, Bundle, Client) {
    cuda::client(setup, &[(SHARE, size)])
}
