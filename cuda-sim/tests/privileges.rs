//! Commands through `control` alone. The rows are those of the table "`control` alone" of
//! sharing.md, measured with driver 580 and `-M`.

mod common;

use common::{Daemon, h100};

fn insufficient(uid: u32) -> String {
    format!(
        "Insufficient privileges for UID {uid}. Control deamon settings can only be modified by \
         the user who started it or by the root user."
    )
}

/// `get_server_list`, `get_client_list`, `ps`, `get_device_pinned_mem_limit`: answered to both.
#[test]
fn answers_questions_of_all_users() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    let mut client = daemon.client();
    assert_eq!(client.free(), 3580);
    let (door, server, pid) = (daemon.door("door"), daemon.server(), client.pid());
    for uid in [0, 1000] {
        let ask = |command: &str| machine.control_as(&door, uid, command);
        assert_eq!(ask("get_server_list"), server.to_string());
        assert_eq!(ask(&format!("get_client_list {server}")), pid.to_string());
        assert_eq!(
            ask(&format!("get_device_pinned_mem_limit {server} 0")),
            "4G"
        );
        let table = ask("ps");
        let (head, row) = table.split_once('\n').unwrap();
        let columns: Vec<_> = head.split_whitespace().collect();
        assert_eq!(
            columns,
            ["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"]
        );
        let row: Vec<_> = row.split_whitespace().collect();
        assert_eq!(
            (row[0], row[2]),
            (pid.to_string().as_str(), server.to_string().as_str())
        );
        assert!(row[5].ends_with("cuda-client"), "{row:?}");
        assert_eq!(ask("help"), "Unknown command \"help\"");
    }
}

/// `set_device_pinned_mem_limit <server> 0 60G` and `set_active_thread_percentage <server> 10`.
#[test]
fn lets_root_change_running_server() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    assert_eq!(daemon.client().free(), 3580);
    let (door, server) = (daemon.door("door"), daemon.server());
    let set_limit = format!("set_device_pinned_mem_limit {server} 0 60G");
    let set_threads = format!("set_active_thread_percentage {server} 10");
    for command in [&set_limit, &set_threads] {
        assert_eq!(machine.control_as(&door, 1000, command), insufficient(1000));
    }
    assert_eq!(daemon.client().free(), 3580);
    assert_eq!(machine.control_as(&door, 0, &set_limit), "");
    assert_eq!(machine.control_as(&door, 0, &set_threads), "10.0");
    assert_eq!(daemon.client().free(), 60 * 1024 - 516);
    // "The host's `set_device_pinned_mem_limit <server> 0 4G` sets the limit back".
    daemon.control(&format!("set_device_pinned_mem_limit {server} 0 4G"));
    assert_eq!(daemon.client().free(), 3580);
}

/// `set_default_device_pinned_mem_limit`: refused to both. `control_privileged` takes it.
#[test]
fn refuses_defaults_through_door() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    let door = daemon.door("door");
    for uid in [0, 1000] {
        let command = "set_default_device_pinned_mem_limit 0 60G";
        assert_eq!(machine.control_as(&door, uid, command), insufficient(uid));
    }
    assert_eq!(
        daemon.control("get_default_device_pinned_mem_limit 0"),
        "4G"
    );
    assert_eq!(
        daemon.control("set_default_active_thread_percentage 50"),
        "50.0"
    );
}

/// `terminate_client` of another's process: refused with a line `800`, and the client lives.
#[test]
fn refuses_to_terminate_for_others() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M");
    let mut client = daemon.client();
    assert_eq!(client.ask("alloc 64"), "ok");
    let command = format!("terminate_client {} {}", daemon.server(), client.pid());
    let answer = machine.control_as(&daemon.door("door"), 1000, &command);
    assert_eq!(answer, insufficient(1000) + "\n800");
    assert_eq!(client.ask("launch 1"), "ok");
}

/// "From 550 on `control` also refuses `quit`"; `start_server` has no answer.
#[test]
fn refuses_quit_through_door() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M");
    let door = daemon.door("door");
    for uid in [0, 1000] {
        let answer = machine.control_as(&door, uid, "quit");
        assert_eq!(answer, "Not enough privilege to execute quit command");
        assert_eq!(machine.control_as(&door, uid, "start_server -uid 1000"), "");
    }
    assert_eq!(daemon.client().ask("alloc 64"), "ok");
}
