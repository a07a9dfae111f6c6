//! A client's connection to the daemon.

use std::io::{self, BufRead};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use nvml_sim::engine::{HolderKind, Machine, Target};
use nvml_sim::holders;

use super::daemon::Daemon;
use super::log;
use super::state::{Client, MAX_CLIENTS, Server, State};
use crate::account::{Account, Size};
use crate::driver::visible;
use crate::error::CudaError;
use crate::limits;
use crate::protocol::{self, Kernel, Open, Reply, Request};
use crate::sys::Peer;

struct Connection<'a> {
    daemon: &'a Arc<Daemon>,
    peer: Peer,
    stream: &'a UnixStream,
    /// Its number among the clients, after it made its context.
    id: Option<u64>,
}

/// Answers the requests of a client until its end.
pub fn serve(
    daemon: &Arc<Daemon>,
    peer: Peer,
    stream: &UnixStream,
    from: &mut impl BufRead,
    first: Request,
) -> io::Result<()> {
    let mut connection = Connection {
        daemon,
        peer,
        stream,
        id: None,
    };
    let result = connection.answer_all(from, first);
    if let Some(id) = connection.id {
        log::add("Server", &format!("Client {id} disconnected"));
        daemon.state().remove_client(&daemon.store, id);
    }
    result
}

impl Connection<'_> {
    fn answer_all(&mut self, from: &mut impl BufRead, first: Request) -> io::Result<()> {
        let mut next = Some(first);
        while let Some(request) = next {
            let reply = self.answer(request).unwrap_or_else(Reply::Error);
            protocol::send(self.stream, &reply)?;
            next = protocol::receive(from)?;
        }
        Ok(())
    }

    fn answer(&mut self, request: Request) -> Result<Reply, CudaError> {
        let store = &self.daemon.store;
        match request {
            Request::Command(_) => Err(CudaError::INVALID_VALUE),
            Request::Devices => Ok(Reply::Devices(served(&*self.machine()?))),
            Request::Open(open) => self.open(&open),
            Request::Allocate(size) => self.done(|client| client.account.grow(store, size)),
            Request::Free(size) => self.done(|client| client.account.shrink(store, size)),
            Request::Memory => {
                self.with_client(|client| client.account.free(store).map(Reply::Bytes))
            }
            Request::Launch(kernel) => self.launch(kernel),
            Request::Synchronize => self.with_client(|client| match client.kernel_end {
                Some(end) if end > Instant::now() => Ok(Reply::Busy),
                _ => Ok(Reply::Done),
            }),
        }
    }

    fn machine(&self) -> Result<Arc<Machine>, CudaError> {
        self.daemon.store.load().map_err(|_| CudaError::UNKNOWN)
    }

    /// Returns the state after the deaths before this moment have had their effect.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.daemon.state();
        state.sweep(&self.daemon.store);
        state
    }

    fn with_server<T>(
        &self,
        act: impl FnOnce(&mut Server, u64) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        let id = self.id.ok_or(CudaError::INVALID_CONTEXT)?;
        let mut state = self.state();
        let server = state.server.as_mut();
        let server = server.filter(|s| s.clients.contains_key(&id));
        act(server.ok_or(CudaError::MPS_RPC_FAILURE)?, id)
    }

    /// Acts for a client whose work has not ended with an error.
    fn with_client<T>(
        &self,
        act: impl FnOnce(&mut Client) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        self.with_server(|server, id| {
            let client = server.clients.get_mut(&id);
            let client = client.ok_or(CudaError::MPS_RPC_FAILURE)?;
            client.error.map_or(Ok(()), Err)?;
            act(client)
        })
    }

    fn done(
        &self,
        act: impl FnOnce(&mut Client) -> Result<(), CudaError>,
    ) -> Result<Reply, CudaError> {
        self.with_client(act).map(|()| Reply::Done)
    }

    fn launch(&self, kernel: Kernel) -> Result<Reply, CudaError> {
        match kernel {
            Kernel::Spin(nanoseconds) => self.done(|client| {
                let start = client.kernel_end.filter(|end| *end > Instant::now());
                let start = start.unwrap_or_else(Instant::now);
                client.kernel_end = Some(kernel_end(start, nanoseconds));
                Ok(())
            }),
            Kernel::Fault => {
                self.with_client(|_| Ok(()))?;
                self.with_server(|server, _| {
                    server.fail_clients(CudaError::ILLEGAL_ADDRESS);
                    Ok(Reply::Done)
                })
            }
        }
    }

    /// Makes the context of a new client, after the server is there.
    fn open(&mut self, open: &Open) -> Result<Reply, CudaError> {
        let machine = self.machine()?;
        let uuid = open.visible.first().ok_or(CudaError::INVALID_DEVICE)?;
        let target = target(&machine, uuid)?;
        let ordinal = served(&machine).iter().position(|served| served == uuid);
        let ordinal = ordinal.ok_or(CudaError::INVALID_DEVICE)?;
        let store = &self.daemon.store;
        let mut state = self.state();
        let started = self.daemon.ensure_server(&mut state, self.peer.uid);
        started.map_err(|_| CudaError::MPS_SERVER_NOT_READY)?;
        let id = state.next_client;
        let server = state.server.as_mut();
        let server = server.ok_or(CudaError::MPS_SERVER_NOT_READY)?;
        if server.clients.len() >= MAX_CLIENTS {
            return Err(CudaError::DEVICE_UNAVAILABLE);
        }
        server.use_gpu(store, target)?;
        let limit = server.limits.of_device(ordinal, uuid);
        let limit = limits::of_client(limit, open.memory_limits.as_deref(), &open.visible);
        let stream = self.stream.try_clone().map_err(|_| CudaError::UNKNOWN)?;
        let pid = self.peer.pid;
        let start_time = holders::start_time(Path::new("/proc"), pid).unwrap_or(0);
        let account = Account::new(target, pid, start_time, HolderKind::MpsClient);
        let mut account = account.limited(limit);
        let context = machine.gpus[target.gpu as usize].model().context_mb << 20;
        account.grow(store, Size::plain(context))?;
        let client = Client {
            peer: self.peer,
            stream,
            account,
            kernel_end: None,
            error: None,
        };
        server.clients.insert(id, client);
        state.next_client += 1;
        drop(state);
        self.id = Some(id);
        self.log_client(id, target.gpu);
        Ok(Reply::Done)
    }

    /// Writes about as many lines as NVIDIA's daemon does for a client.
    fn log_client(&self, id: u64, gpu: u32) {
        let Peer { pid, uid } = self.peer;
        log::add("Control", "Accepting connection...");
        let text = format!("NEW CLIENT {pid} from user {uid}: Server already exists");
        log::add("Control", &text);
        for step in [
            "Received",
            "Creating worker for",
            "Accepted",
            "Opened GPU for",
        ] {
            let text = format!("{step} client {id} (PID {pid}, GPU {gpu})");
            log::add("Server", &text);
        }
    }
}

/// Returns the UUIDs of the GPUs that this daemon serves: its own `CUDA_VISIBLE_DEVICES` confines
/// it.
pub fn served(machine: &Machine) -> Vec<String> {
    let all = visible::devices(machine).into_iter().map(|d| d.uuid);
    let all: Vec<String> = all.collect();
    visible::chosen(&all, std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref())
}

fn target(machine: &Machine, uuid: &str) -> Result<Target, CudaError> {
    let mut devices = visible::devices(machine).into_iter();
    let found = devices.find(|device| device.uuid == uuid);
    Ok(found.ok_or(CudaError::INVALID_DEVICE)?.target)
}

/// Returns the end of a kernel. One that runs for ever ends after a hundred years.
pub fn kernel_end(start: Instant, nanoseconds: u64) -> Instant {
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    start + Duration::from_nanos(nanoseconds).min(LONGEST)
}
