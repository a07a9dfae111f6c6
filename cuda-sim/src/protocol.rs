//! Messages on the sockets of an MPS daemon: a line of JSON each. NVIDIA's own protocol is not
//! public, so neither end works with NVIDIA's.

use std::io::{self, BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::account::Size;
use crate::error::CudaError;

/// The default of `CUDA_MPS_PIPE_DIRECTORY`.
pub const DEFAULT_PIPES: &str = "/tmp/nvidia-mps";

/// The socket of clients, and of users that may not use [`PRIVILEGED`].
pub const CONTROL: &str = "control";
/// The socket of the user that started the daemon.
pub const PRIVILEGED: &str = "control_privileged";

/// A message to the daemon.
#[derive(Debug, Deserialize, Serialize)]
pub enum Request {
    /// A command of a user, as the control program reads it.
    Command(String),
    /// Asks for the UUIDs of the GPUs that the daemon serves.
    Devices,
    /// Makes the context, by which the process becomes a client.
    Open(Open),
    Allocate(Size),
    Free(Size),
    /// Asks for the bytes that the client can still allocate.
    Memory,
    Launch(Kernel),
    /// Asks whether a kernel of the client runs.
    Synchronize,
}

/// A context, with the parts of the client's environment that matter.
#[derive(Debug, Deserialize, Serialize)]
pub struct Open {
    /// UUIDs of the devices that the client sees, in the order of its ordinals. It uses the first.
    pub visible: Vec<String>,
    /// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`.
    pub memory_limits: Option<String>,
}

/// A kernel that the simulation runs.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
pub enum Kernel {
    /// It runs for so many nanoseconds.
    Spin(u64),
    /// It accesses an illegal address.
    Fault,
}

/// The daemon's answer.
#[derive(Debug, Deserialize, Serialize)]
pub enum Reply {
    Done,
    Text(String),
    Devices(Vec<String>),
    Bytes(u64),
    /// A kernel runs.
    Busy,
    Error(CudaError),
}

/// Writes one message at once.
pub fn send<T: Serialize>(mut to: impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads one message; `None` at the end of the stream.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}
