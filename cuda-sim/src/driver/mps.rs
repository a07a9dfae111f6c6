//! CUDA's connection to an MPS daemon.

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::error::CudaError;
use crate::protocol::{self, CONTROL, DEFAULT_PIPES, Open, Reply, Request};
use crate::sys;

pub struct Connection {
    stream: UnixStream,
    from: BufReader<UnixStream>,
    /// UUIDs of the GPUs that the daemon serves, in the order of its ordinals.
    pub devices: Vec<String>,
}

impl Connection {
    /// Connects to the daemon that the environment names. No daemon is no error: the process then
    /// runs without MPS.
    ///
    /// # Errors
    /// The daemon refuses the process.
    pub fn open() -> Result<Option<Connection>, CudaError> {
        let dir = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY");
        let dir = dir.map_or_else(|| DEFAULT_PIPES.into(), PathBuf::from);
        let Ok(stream) = UnixStream::connect(dir.join(CONTROL)) else {
            return Ok(None);
        };
        let from = stream.try_clone().map_err(|_| CudaError::UNKNOWN)?;
        let mut connection = Connection {
            stream,
            from: BufReader::new(from),
            devices: Vec::new(),
        };
        match connection.ask(&Request::Devices)? {
            Reply::Devices(devices) => connection.devices = devices,
            _ => return Err(CudaError::MPS_CONNECTION_FAILED),
        }
        Ok(Some(connection))
    }

    /// Sends a request and returns the daemon's answer.
    ///
    /// # Errors
    /// The daemon answers with an error, or it or its server is dead (806).
    pub fn ask(&mut self, request: &Request) -> Result<Reply, CudaError> {
        let mut line = Vec::new();
        protocol::send(&mut line, request).map_err(|_| CudaError::UNKNOWN)?;
        let sent = sys::send_all(&self.stream, &line);
        let reply = sent.and_then(|()| protocol::receive(&mut self.from));
        match reply {
            Ok(Some(Reply::Error(error))) => Err(error),
            Ok(Some(reply)) => Ok(reply),
            Ok(None) | Err(_) => Err(CudaError::MPS_RPC_FAILURE),
        }
    }

    /// Makes the context, on the first of these devices.
    pub fn make_context(&mut self, visible: &[String]) -> Result<(), CudaError> {
        let open = Open {
            visible: visible.to_vec(),
            memory_limits: std::env::var("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT").ok(),
        };
        self.ask(&Request::Open(open)).map(drop)
    }
}
