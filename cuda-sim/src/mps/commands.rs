//! The commands of the control program, with the answers of driver 580.

use std::sync::Arc;

use super::client::served;
use super::daemon::Daemon;
use super::state::{Server, State};
use crate::driver::visible;
use crate::error::CudaError;
use crate::limits;
use crate::sys::Peer;

/// A user who gave a command.
struct User {
    uid: u32,
    /// The command came over the socket that only the daemon's own user may open.
    privileged: bool,
}

impl User {
    /// Returns whether the user may change the settings of the running server.
    fn owns_server(&self) -> bool {
        self.privileged || self.uid == 0
    }

    /// Returns the words of a refusal, spelled as NVIDIA does.
    fn refusal(&self) -> String {
        format!(
            "Insufficient privileges for UID {}. Control deamon settings can only be modified by \
             the user who started it or by the root user.\n",
            self.uid
        )
    }
}

/// Runs a command and returns the text of its answer, which is empty for most.
pub fn run(daemon: &Arc<Daemon>, peer: Peer, privileged: bool, line: &str) -> String {
    let uid = peer.uid;
    let user = User { uid, privileged };
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut state = daemon.state();
    state.sweep(&daemon.store);
    match words.as_slice() {
        ["get_server_list"] => {
            let server = state.server.as_ref();
            server.map_or(String::new(), |server| format!("{}\n", server.pid))
        }
        ["start_server", "-uid", uid] => {
            if let Ok(uid) = uid.parse() {
                start_server(daemon, &mut state, uid);
            }
            String::new()
        }
        ["terminate_client", server, client] => {
            if !user.owns_server() {
                return format!("{}800\n", user.refusal());
            }
            with_server(&mut state, server, |server| terminate(server, client))
        }
        ["quit", ..] => "Not enough privilege to execute quit command\n".to_owned(),
        [command, rest @ ..] => setting(&user, &mut state, command, rest)
            .unwrap_or_else(|| format!("Unknown command \"{}\"\n", line.trim())),
        [] => String::new(),
    }
}

/// Reads or changes a setting; `None` if there is no such command.
fn setting(user: &User, state: &mut State, command: &str, args: &[&str]) -> Option<String> {
    let shown = |limit: Option<u64>| format!("{}\n", limits::display(limit.unwrap_or(0)));
    let may_change = match command.starts_with("set_default") {
        true => user.privileged,
        false => user.owns_server(),
    };
    let is_setting = command.ends_with("_device_pinned_mem_limit");
    if command.starts_with("set_") && !may_change && is_setting {
        return Some(user.refusal());
    }
    Some(match (command, args) {
        ("get_default_device_pinned_mem_limit", [device]) => shown(state.limits.get(device)),
        ("set_default_device_pinned_mem_limit", [device, value]) => {
            state.limits.set(device, value);
            String::new()
        }
        ("get_device_pinned_mem_limit", [server, device]) => {
            with_server(state, server, |s| shown(s.limits.get(device)))
        }
        ("set_device_pinned_mem_limit", [server, device, value]) => {
            with_server(state, server, |server| {
                server.limits.set(device, value);
                String::new()
            })
        }
        _ => return None,
    })
}

/// Answers for a server by its pid. The words for a wrong pid are not NVIDIA's.
fn with_server(state: &mut State, pid: &str, act: impl FnOnce(&mut Server) -> String) -> String {
    let server = state.server.as_mut();
    match server.filter(|server| pid.parse() == Ok(server.pid)) {
        Some(server) => act(server),
        None => format!("Server {pid} not found\n"),
    }
}

fn terminate(server: &mut Server, client: &str) -> String {
    let pid: Option<u32> = client.parse().ok();
    let clients = server.clients.values_mut();
    let clients: Vec<_> = clients.filter(|it| Some(it.peer.pid) == pid).collect();
    if clients.is_empty() {
        return format!("Client {client} not found\n");
    }
    for client in clients {
        client.end(CudaError::MPS_CLIENT_TERMINATED);
    }
    "0\n".to_owned()
}

fn start_server(daemon: &Arc<Daemon>, state: &mut State, uid: u32) {
    if daemon.ensure_server(state, uid).is_err() {
        return;
    }
    let Ok(machine) = daemon.store.load() else {
        return;
    };
    let first = served(&machine).first().cloned();
    let mut devices = visible::devices(&machine).into_iter();
    let gpu = devices.find(|device| Some(&device.uuid) == first.as_ref());
    if let (Some(server), Some(gpu)) = (&mut state.server, gpu) {
        // A server without a GPU serves no client, and says so then.
        let _ = server.use_gpu(&daemon.store, gpu.target);
    }
}
