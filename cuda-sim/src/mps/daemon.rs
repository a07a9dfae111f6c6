//! The control daemon: it listens in a pipe directory, starts a server for the first client and
//! keeps the books of all clients.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_sim::state::Store;

use super::log::Log;
use super::pipes::{self, Pipes};
use super::state::State;
use super::{client, commands};
use crate::limits::Limits;
use crate::protocol::{self, Reply, Request};
use crate::sys;

/// Tells the process that `-d` starts from the one that the user started.
const BACKGROUND: &str = "CUDA_SIM_MPS_BACKGROUND";
const READY: &str = "ready";
/// The time after which a thread that waits for clients looks again.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub struct Daemon {
    pub store: Store,
    pub log: Log,
    pub multiuser: bool,
    /// The user that started it.
    pub owner: u32,
    state: Mutex<State>,
    /// A client or a server is gone, or the daemon quits.
    pub changed: Condvar,
}

/// Starts a daemon in a process of its own, and returns when it listens.
pub fn start_in_background(store: Store, pipes: PathBuf, multiuser: bool) -> io::Result<()> {
    if std::env::var_os(BACKGROUND).is_some() {
        sys::leave_session();
        return run(store, pipes, multiuser, Log::in_directory()?);
    }
    let mut child = Command::new(std::env::current_exe()?)
        .arg0("nvidia-cuda-mps-control")
        .args(std::env::args_os().skip(1))
        .env(BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    match line.trim_end() {
        READY => Ok(()),
        _ => {
            let mut words = String::new();
            if let Some(mut errors) = child.stderr.take() {
                errors.read_to_string(&mut words)?;
            }
            Err(io::Error::other(words.trim_end().to_owned()))
        }
    }
}

/// Runs a daemon until it is told to quit or gets a signal.
pub fn run(store: Store, pipes: PathBuf, multiuser: bool, log: Log) -> io::Result<()> {
    let Pipes {
        control,
        privileged,
        lock,
    } = pipes::create(&pipes)?;
    let threads = std::env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    let daemon = Arc::new(Daemon {
        store,
        log,
        multiuser,
        owner: nvml_sim::sys::effective_uid(),
        state: Mutex::new(State {
            limits: Limits::default(),
            threads: threads.ok().and_then(|t| t.parse().ok()).unwrap_or(100.0),
            server: None,
            quitting: false,
            next_client: 1,
        }),
        changed: Condvar::new(),
    });
    if std::env::var_os(BACKGROUND).is_some() {
        writeln!(io::stdout(), "{READY}")?;
    }
    daemon.log.add("Control", "Start");
    let of_owner = daemon.clone();
    thread::spawn(move || of_owner.accept(&privileged, true));
    daemon.accept(&control, false);
    drop(lock);
    Ok(())
}

fn is_quit(line: &str) -> bool {
    line.split_whitespace().next() == Some("quit")
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
            Some(Request::Command(line)) if privileged && is_quit(&line) => self.quit(&line),
            Some(Request::Command(line)) => {
                let text = commands::run(self, peer, privileged, &line);
                protocol::send(stream, &Reply::Text(text))?;
            }
            Some(first) => client::serve(self, peer, stream, &mut from, first)?,
            None => {}
        }
        Ok(())
    }

    /// Ends this process after its last client, with `-t SECONDS` after that time at the latest.
    fn quit(&self, line: &str) -> ! {
        let seconds = line.split_whitespace().nth(2).and_then(|t| t.parse().ok());
        let start = Instant::now();
        let is_over = |seconds: u64| start.elapsed() >= Duration::from_secs(seconds);
        let mut state = self.state();
        state.quitting = true;
        self.log.add("Control", "Quitting after the last client");
        loop {
            state.sweep(&self.store);
            let idle = state.server.as_ref().is_none_or(|s| s.clients.is_empty());
            if idle || seconds.is_some_and(is_over) {
                state.stop_server();
                self.log.add("Control", "Exit");
                std::process::exit(0);
            }
            let waited = self.changed.wait_timeout(state, LOOK_AGAIN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Starts a server if there is none.
    pub fn ensure_server(self: &Arc<Daemon>, state: &mut State, uid: u32) -> io::Result<()> {
        if state.server.is_some() {
            return Ok(());
        }
        let text = format!("Starting new server for user {uid}");
        self.log.add("Control", &text);
        let child = state.start_server(self.store.dir(), uid)?;
        let daemon = self.clone();
        thread::spawn(move || daemon.reap(child));
        Ok(())
    }

    /// Waits for the end of a server.
    fn reap(&self, mut child: Child) {
        let pid = child.id();
        let _ = child.wait();
        self.log.add("Control", &format!("Server {pid} exited"));
        let mut state = self.state();
        if state.server.as_ref().is_some_and(|s| s.pid == pid) {
            state.drop_server();
        }
        self.changed.notify_all();
    }
}
