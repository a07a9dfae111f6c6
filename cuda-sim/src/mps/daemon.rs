//! The control daemon: it listens in a pipe directory, starts a server for the first client and
//! keeps the books of all clients.

use std::io::{self, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use nvml_sim::state::Store;

use super::pipes::{self, Pipes};
use super::state::State;
use super::{client, commands, log};
use crate::limits::Limits;
use crate::protocol::{self, Reply, Request};
use crate::sys;

pub struct Daemon {
    pub store: Store,
    state: Mutex<State>,
}

/// Runs a daemon until it gets a signal.
pub fn run(store: Store, pipes: &Path) -> io::Result<()> {
    let Pipes {
        control,
        privileged,
        lock,
    } = pipes::create(pipes)?;
    let daemon = Arc::new(Daemon {
        store,
        state: Mutex::new(State {
            limits: Limits::default(),
            server: None,
            next_client: 1,
        }),
    });
    log::add("Control", "Start");
    let of_owner = daemon.clone();
    thread::spawn(move || of_owner.accept(&privileged, true));
    daemon.accept(&control, false);
    drop(lock);
    Ok(())
}

impl Daemon {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Daemon>, listener: &UnixListener, privileged: bool) {
        for stream in listener.incoming().flatten() {
            let daemon = self.clone();
            thread::spawn(move || {
                // A peer that breaks off or talks nonsense loses its connection alone.
                let _ = daemon.serve(&stream, privileged);
            });
        }
    }

    fn serve(self: &Arc<Daemon>, stream: &UnixStream, privileged: bool) -> io::Result<()> {
        let peer = sys::peer(stream)?;
        let mut from = BufReader::new(stream);
        match protocol::receive(&mut from)? {
            Some(Request::Command(line)) => {
                let text = commands::run(self, peer, privileged, &line);
                protocol::send(stream, &Reply::Text(text))?;
            }
            Some(first) => client::serve(self, peer, stream, &mut from, first)?,
            None => {}
        }
        Ok(())
    }

    /// Starts a server if there is none.
    pub fn ensure_server(self: &Arc<Daemon>, state: &mut State, uid: u32) -> io::Result<()> {
        if state.server.is_some() {
            return Ok(());
        }
        let text = format!("Starting new server for user {uid}");
        log::add("Control", &text);
        let child = state.start_server(self.store.dir())?;
        let daemon = self.clone();
        thread::spawn(move || daemon.reap(child));
        Ok(())
    }

    /// Waits for the end of a server.
    fn reap(&self, mut child: Child) {
        let pid = child.id();
        let _ = child.wait();
        log::add("Control", &format!("Server {pid} exited"));
        let mut state = self.state();
        if state.server.as_ref().is_some_and(|s| s.pid == pid) {
            state.drop_server();
        }
    }
}
