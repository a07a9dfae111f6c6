//! The control daemon with driver 580, and the answers to commands through `control` alone.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::Output;

use crate::common::{Client, Daemon, Machine, h100};

const NO_DAEMON: &str = "Cannot find MPS control daemon process";

fn fails_with(output: Output, words: &str) {
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.trim_end(), words);
}

/// "Files in the pipe directory", which one daemon has for itself.
#[test]
fn makes_files_of_pipe_directory() {
    let machine = h100();
    let daemon = Daemon::start(&machine);
    let entry = |name: &str| fs::metadata(daemon.pipes.join(name)).unwrap();
    for (name, mode) in [("control", 0o666), ("control_privileged", 0o755)] {
        assert!(entry(name).file_type().is_socket(), "{name}");
        assert_eq!(entry(name).mode() & 0o777, mode, "{name}");
    }
    assert!(entry("control_lock").is_file());
    assert!(entry("log").file_type().is_fifo());
    let pid = fs::read(daemon.pipes.join("nvidia-cuda-mps-control.pid")).unwrap();
    assert_eq!(pid, format!("{}\0", daemon.pid()).into_bytes());
    let second = machine.control_program(&daemon.pipes).arg("-f").output();
    let running = "An instance of this daemon is already running";
    fails_with(second.unwrap(), running);
}

/// "535 and 550 do not have it": the words of a program without a daemon.
#[test]
fn knows_multiuser_option_of_driver() {
    for (branch, option) in [("550", None), ("580", Some("-M")), ("615", Some("-m"))] {
        let machine = Machine::new(&format!("--gpu H100-80GB --mig off --driver {branch}"));
        let pipes = machine.dir().join("pipes");
        let help = machine.control_program(&pipes).arg("-h").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        for known in ["-M", "-m"] {
            let shown = help.contains(&format!("{known},--multiuser"));
            assert_eq!(shown, option == Some(known), "{help}");
            if option != Some(known) {
                let mut program = machine.control_program(&pipes);
                fails_with(program.args(["-f", known]).output().unwrap(), NO_DAEMON);
            }
        }
        fails_with(machine.try_control(&pipes, 0, "get_server_list"), NO_DAEMON);
    }
}

/// "Its `control` is a new file, so a hard link of the old one leads nowhere": the client is
/// unlimited through the old link, and held again through a new one.
#[test]
fn restart_needs_new_door() {
    let machine = h100();
    let mut daemon = Daemon::start(&machine).limited("4G");
    let door = daemon.door("door");
    assert_eq!(machine.client(&door).free(), 3580);
    daemon.end(libc::SIGKILL);
    assert!(machine.client(&door).free() > 78 * 1024);
    let next = Daemon::start(&machine).limited("4G");
    assert!(machine.client(&door).free() > 78 * 1024);
    next.door("door");
    assert_eq!(machine.client(&door).free(), 3580);
}

/// "At most 48 clients a server": the 49th gets cudaErrorDevicesUnavailable.
#[test]
fn admits_48_clients() {
    let machine = h100();
    let daemon = Daemon::start(&machine);
    let mut clients: Vec<Client> = (0..48).map(|_| daemon.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("sync"), "ok");
    }
    let refused = daemon.client().ask("info");
    assert_eq!(refused, "error CUDA_ERROR_DEVICE_UNAVAILABLE");
    clients.pop().unwrap().kill();
    assert_eq!(daemon.client().ask("sync"), "ok");
}

fn insufficient(uid: u32) -> String {
    format!(
        "Insufficient privileges for UID {uid}. Control deamon settings can only be modified by \
         the user who started it or by the root user."
    )
}

/// The table "`control` alone": root may change the running server, another user may ask, and nobody may change
/// defaults or quit.
#[test]
fn control_alone_has_few_rights() {
    let machine = h100();
    let daemon = Daemon::start(&machine).limited("4G");
    let mut client = daemon.client();
    assert_eq!(client.free(), 3580);
    let (door, server) = (daemon.door("door"), daemon.server());
    let terminate = format!("terminate_client {server} {}", client.pid());
    let raise = format!("set_device_pinned_mem_limit {server} 0 60G");
    let limit = format!("get_device_pinned_mem_limit {server} 0");
    let ask = |uid: u32, command: &str| machine.control_as(&door, uid, command);
    for uid in [1000, 0] {
        let rows: [(&str, &str); 6] = [
            ("get_server_list", &server.to_string()),
            (&limit, "4G"),
            (
                "set_default_device_pinned_mem_limit 0 60G",
                &insufficient(uid),
            ),
            ("quit", "Not enough privilege to execute quit command"),
            ("help", "Unknown command \"help\""),
            ("start_server -uid 1000", ""),
        ];
        for (command, answer) in rows {
            assert_eq!(ask(uid, command), answer, "{command} of {uid}");
        }
    }
    assert_eq!(ask(1000, &terminate), insufficient(1000) + "\n800");
    assert_eq!(ask(1000, &raise), insufficient(1000));
    assert_eq!(daemon.client().free(), 3580);
    assert_eq!(ask(0, &raise), "");
    assert_eq!(daemon.client().free(), 60 * 1024 - 516);
    // "The host's `set_device_pinned_mem_limit <server> 0 4G` sets the limit back".
    daemon.control(&format!("set_device_pinned_mem_limit {server} 0 4G"));
    assert_eq!(daemon.client().free(), 3580);
    assert_eq!(client.ask("launch 1"), "ok");
}
