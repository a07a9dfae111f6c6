//! "MPS: effect of failures", with driver 580.

use crate::common::{Daemon, h100, send_signal};

const ILLEGAL_ADDRESS: &str = "error CUDA_ERROR_ILLEGAL_ADDRESS";
const RPC_FAILURE: &str = "error CUDA_ERROR_MPS_RPC_FAILURE";

/// "illegal address in one client".
#[test]
fn fault_ends_clients_of_daemon() {
    let machine = h100();
    let daemon = Daemon::start(&machine);
    let elsewhere = Daemon::start_in(&machine, &machine.dir().join("elsewhere"), "-M", &[]);
    let (mut one, mut other) = (daemon.client(), daemon.client());
    let (mut outside, mut plain) = (elsewhere.client(), machine.plain_client());
    for client in [&mut other, &mut outside, &mut plain] {
        assert_eq!(client.ask("alloc 64"), "ok");
    }
    assert_eq!(one.ask("fault"), ILLEGAL_ADDRESS);
    for client in [&mut one, &mut other] {
        assert_eq!(client.ask("sync"), ILLEGAL_ADDRESS);
        assert_eq!(client.ask("info"), ILLEGAL_ADDRESS);
    }
    for client in [&mut daemon.client(), &mut outside, &mut plain] {
        assert_eq!(client.ask("launch 1"), "ok");
    }
}

/// "SIGKILL of a client in a running kernel", and of an idle one, which ends nothing.
#[test]
fn kill_in_kernel_ends_others() {
    let machine = h100();
    let daemon = Daemon::start(&machine);
    let (mut idle, mut one, mut other) = (daemon.client(), daemon.client(), daemon.client());
    assert_eq!(idle.ask("launch 1"), "ok");
    assert_eq!(one.ask("spin"), "ok");
    idle.kill();
    assert_eq!(other.ask("spin"), "ok");
    one.kill();
    assert_eq!(other.ask("sync"), ILLEGAL_ADDRESS);
    assert_eq!(daemon.client().ask("launch 1"), "ok");
}

/// "`terminate_client <server> <client>` before a SIGKILL".
#[test]
fn terminate_ends_client_alone() {
    let machine = h100();
    let daemon = Daemon::start(&machine);
    let (mut one, mut other) = (daemon.client(), daemon.client());
    assert_eq!(other.ask("alloc 64"), "ok");
    assert_eq!(one.ask("spin"), "ok");
    let command = format!("terminate_client {} {}", daemon.server(), one.pid());
    assert_eq!(daemon.control(&command), "0");
    assert_eq!(one.ask("sync"), "error CUDA_ERROR_MPS_CLIENT_TERMINATED");
    one.kill();
    assert_eq!(other.ask("launch 1"), "ok");
    assert_eq!(daemon.client().ask("launch 1"), "ok");
}

/// "SIGKILL of the server".
#[test]
fn server_starts_again() {
    let machine = h100();
    let daemon = Daemon::start(&machine).limited("4G");
    let mut client = daemon.client();
    assert_eq!(client.free(), 3580);
    let server = daemon.server();
    send_signal(server, libc::SIGKILL);
    daemon.wait_for_log(&format!("Server {server} exited"));
    assert_eq!(client.ask("info"), RPC_FAILURE);
    assert_eq!(daemon.client().free(), 3580);
    assert_ne!(daemon.server(), server);
}

/// "SIGKILL of the control daemon: the server ends with it", and new processes run round it.
#[test]
fn death_of_daemon_leaves_unlimited() {
    let machine = h100();
    let mut daemon = Daemon::start(&machine).limited("4G");
    let mut client = daemon.client();
    assert_eq!(client.free(), 3580);
    daemon.end(libc::SIGKILL);
    assert_eq!(client.ask("info"), RPC_FAILURE);
    client.kill();
    assert!(daemon.client().free() > 78 * 1024);
}
