//! The daemon's settings, its server and the server's clients.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Instant;

use nvml_sim::engine::{HolderKind, Target};
use nvml_sim::holders;
use nvml_sim::state::Store;

use super::server;
use crate::account::{Account, Size};
use crate::error::CudaError;
use crate::limits::Limits;
use crate::sys::{self, Peer};

/// The most clients of a server; the next one is refused.
pub const MAX_CLIENTS: usize = 48;
/// GPU memory of a server, measured on an H100.
const SERVER_BYTES: u64 = 72 << 20;

/// Settings for servers that start later, and the server.
pub struct State {
    pub limits: Limits,
    pub server: Option<Server>,
    pub next_client: u64,
}

pub struct Server {
    pub pid: u32,
    start_time: u64,
    pub limits: Limits,
    pub clients: BTreeMap<u64, Client>,
    gpus: BTreeMap<Target, Account>,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

pub struct Client {
    pub peer: Peer,
    /// The client's socket, a copy of that which its thread reads from.
    pub stream: UnixStream,
    pub account: Account,
    /// The end of its last kernel.
    pub kernel_end: Option<Instant>,
    /// The error that ended its work: every later call answers it.
    pub error: Option<CudaError>,
}

impl Client {
    /// Ends its work with an error.
    pub fn end(&mut self, error: CudaError) {
        self.error.get_or_insert(error);
        self.kernel_end = None;
    }

    fn is_in_kernel(&self) -> bool {
        self.kernel_end.is_some_and(|end| end > Instant::now())
    }
}

impl State {
    /// Notices that the server or clients are dead. Every request does so first, so that a client
    /// sees the effect of a death that came before its call.
    pub fn sweep(&mut self, store: &Store) {
        let Some(server) = &mut self.server else {
            return;
        };
        if !server.is_alive() {
            self.drop_server();
            return;
        }
        let is_dead = |client: &Client| sys::is_hung_up(client.stream.as_fd());
        let dead = server.clients.iter().filter(|(_, c)| is_dead(c));
        let dead: Vec<u64> = dead.map(|(id, _)| *id).collect();
        for id in dead {
            self.remove_client(store, id);
        }
    }

    /// Removes a client that is gone. One that was in a kernel ends the work of all others.
    pub fn remove_client(&mut self, store: &Store, id: u64) {
        let Some(server) = &mut self.server else {
            return;
        };
        let Some(client) = server.clients.remove(&id) else {
            return;
        };
        if client.error.is_none() && client.is_in_kernel() {
            server.fail_clients(CudaError::ILLEGAL_ADDRESS);
        }
        client.account.close(store);
    }

    /// Forgets a server that is dead, and cuts its clients off.
    pub fn drop_server(&mut self) {
        for client in self.server.take().iter().flat_map(|s| s.clients.values()) {
            let _ = client.stream.shutdown(Shutdown::Both);
        }
    }

    /// Starts a server with the settings of this moment, and returns the process to wait for.
    pub fn start_server(&mut self, dir: &Path) -> io::Result<Child> {
        let mut child = server::start(dir)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| io::Error::other("cannot pipe to the server"))?;
        let pid = child.id();
        self.server = Some(Server {
            pid,
            start_time: holders::start_time(Path::new("/proc"), pid).unwrap_or(0),
            limits: self.limits.clone(),
            clients: BTreeMap::new(),
            gpus: BTreeMap::new(),
            input,
            output: BufReader::new(output),
        });
        Ok(child)
    }
}

impl Server {
    /// Returns whether the process runs: a zombie has closed its output.
    pub fn is_alive(&self) -> bool {
        !sys::is_hung_up(self.output.get_ref().as_fd())
    }

    /// Puts the server on a device, where it takes memory, at the first call for the device.
    pub fn use_gpu(&mut self, store: &Store, gpu: Target) -> Result<(), CudaError> {
        if self.gpus.contains_key(&gpu) {
            return Ok(());
        }
        let mut account = Account::new(gpu, self.pid, self.start_time, HolderKind::MpsServer);
        account.grow(store, Size::plain(SERVER_BYTES))?;
        let mut line = String::new();
        let wanted = serde_json::to_string(&gpu).map_err(|_| CudaError::UNKNOWN)?;
        writeln!(self.input, "{wanted}")
            .and_then(|()| self.output.read_line(&mut line))
            .map_err(|_| CudaError::MPS_SERVER_NOT_READY)?;
        self.gpus.insert(gpu, account);
        Ok(())
    }

    /// Ends the work of every client with an error.
    pub fn fail_clients(&mut self, error: CudaError) {
        self.clients
            .values_mut()
            .for_each(|client| client.end(error));
    }
}
