//! The control daemon. The rows are those of sharing.md, "MPS, protocol 2: daemons", measured with
//! driver 580 or with NVIDIA's control program of 550.

mod common;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::Stdio;

use common::{Client, Daemon, Machine, h100};

const NO_DAEMON: &str = "Cannot find MPS control daemon process";

/// "Files in the pipe directory".
#[test]
fn makes_files_of_pipe_directory() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "");
    let entry = |name: &str| fs::metadata(daemon.pipes.join(name)).unwrap();
    for (name, mode) in [("control", 0o666), ("control_privileged", 0o755)] {
        assert!(entry(name).file_type().is_socket(), "{name}");
        assert_eq!(entry(name).mode() & 0o777, mode, "{name}");
    }
    assert!(entry("control_lock").is_file());
    assert!(entry("log").file_type().is_fifo());
    let pid = fs::read(daemon.pipes.join("nvidia-cuda-mps-control.pid")).unwrap();
    assert_eq!(pid, format!("{}\0", daemon.pid()).into_bytes());
}

/// "A second daemon in the same directory: exit 1".
#[test]
fn refuses_second_daemon() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "");
    let second = machine
        .control_program(&daemon.pipes)
        .arg("-f")
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let words = [second.stdout, second.stderr].concat();
    assert_eq!(words, b"An instance of this daemon is already running\n");
}

/// "A socket path is at most 107 bytes."
#[test]
fn refuses_long_socket_path() {
    let machine = h100();
    let base = machine.dir().as_os_str().len() + "/".len() + "/control_privileged".len();
    let dir = machine.make_dir(&"x".repeat(108 - base));
    let output = machine.control_program(&dir).arg("-f").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let dir = machine.make_dir(&"y".repeat(107 - base));
    Daemon::start_in(&machine, &dir, "", &[]);
}

/// "535 and 550 do not have it": exit 1 and the words of a program without a daemon.
#[test]
fn knows_multiuser_option_of_driver() {
    let rows = [
        ("550", "-M", false),
        ("580", "-M", true),
        ("615", "-m", true),
    ];
    for (branch, option, known) in rows {
        let machine = Machine::new(&format!("--gpu H100-80GB --mig off --driver {branch}"));
        let pipes = machine.dir().join("pipes");
        let help = machine.control_program(&pipes).arg("-h").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        assert_eq!(
            help.contains("-M,--multiuser-server"),
            branch == "580",
            "{help}"
        );
        assert_eq!(help.contains("-m,--multiuser"), branch == "615", "{help}");
        if known {
            Daemon::start(&machine, option);
        } else {
            let output = machine
                .control_program(&pipes)
                .args(["-f", option])
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(1));
            assert_eq!(
                String::from_utf8(output.stderr).unwrap().trim_end(),
                NO_DAEMON
            );
        }
    }
}

/// A command without a daemon fails with these words.
#[test]
fn control_program_needs_daemon() {
    let machine = h100();
    let output = machine.try_control(&machine.dir().join("pipes"), 0, "get_server_list");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap().trim_end(),
        NO_DAEMON
    );
}

/// `-d` returns when the daemon listens; its log is a file. `quit` ends it.
#[test]
fn starts_in_background() {
    let machine = h100();
    let pipes = machine.dir().join("pipes");
    // The caller's pipes close, although the daemon lives on.
    let started = machine.control_program(&pipes).arg("-d").output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let again = machine.control_program(&pipes).arg("-d").output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(
        again.stderr,
        b"An instance of this daemon is already running\n"
    );
    assert_eq!(machine.client(&pipes).ask("alloc 64"), "ok");
    let log = fs::read_to_string(machine.dir().join("log/control.log")).unwrap();
    assert!(log.contains("Starting new server"), "{log}");
    assert_eq!(machine.control_as(&pipes, 0, "quit"), "");
    let after = machine.try_control(&pipes, 0, "get_server_list");
    assert_eq!(after.status.code(), Some(1));
}

/// "about ten lines each".
#[test]
fn logs_lines_of_each_client() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M");
    daemon.client().ask("info");
    daemon.wait_for_log("Client 1 disconnected");
    let before = daemon.log_lines();
    daemon.client().ask("info");
    daemon.wait_for_log("Client 2 disconnected");
    let lines = daemon.log_lines() - before;
    assert!((5..=15).contains(&lines), "{lines}");
}

/// "Its `control` is a new file, so a hard link of the old one leads nowhere": the client is
/// unlimited through the old link, and held again through a new one.
#[test]
fn restart_needs_new_door() {
    let machine = h100();
    let mut daemon = Daemon::start(&machine, "-M").limited("4G");
    let door = daemon.door("door");
    assert_eq!(machine.client(&door).free(), 3580);
    daemon.end(libc::SIGKILL);
    assert!(machine.client(&door).free() > 78 * 1024);
    let next = Daemon::start(&machine, "-M").limited("4G");
    let inode = |dir: &std::path::Path| fs::metadata(dir.join("control")).unwrap().ino();
    assert_ne!(inode(&door), inode(&next.pipes));
    assert!(machine.client(&door).free() > 78 * 1024);
    next.door("door");
    assert_eq!(inode(&door), inode(&next.pipes));
    assert_eq!(machine.client(&door).free(), 3580);
}

/// SIGTERM ends the daemon, and with it the server.
#[test]
fn ends_on_signal() {
    let machine = h100();
    let mut daemon = Daemon::start(&machine, "-M");
    let mut client = daemon.client();
    assert_eq!(client.ask("alloc 64"), "ok");
    daemon.end(libc::SIGTERM);
    assert_eq!(client.ask("info"), "error CUDA_ERROR_MPS_RPC_FAILURE");
}

/// "Without `-M` a server serves one user".
#[test]
fn serves_one_user_at_once() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "");
    let mut first = daemon.client();
    assert_eq!(first.ask("alloc 64"), "ok");
    let server = daemon.server();
    let mut second = client_of_user(&machine, &daemon);
    second.tell("info");
    daemon.wait_for_log("User 1000 waits");
    assert_eq!(
        daemon.control(&format!("get_client_list {server}")),
        first.pid().to_string()
    );
    assert_eq!(first.ask("alloc 64"), "ok");
    first.kill();
    assert_eq!(second.answer(), "total 81079 free 80491");
    assert_ne!(daemon.server(), server);
}

/// "With `-M` root and uid 1000 run at once under one limit".
#[test]
fn serves_users_together() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    let mut first = daemon.client();
    assert_eq!(first.free(), 3580);
    assert_eq!(client_of_user(&machine, &daemon).free(), 3580);
    assert_eq!(first.free(), 3580);
}

fn client_of_user(machine: &Machine, daemon: &Daemon) -> Client {
    use std::os::unix::process::CommandExt;
    Client::start(machine.client_program(&daemon.pipes).uid(1000))
}

/// "At most 48 clients a server": the 49th gets cudaErrorDevicesUnavailable.
#[test]
fn admits_48_clients() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M");
    let mut clients: Vec<Client> = (0..48).map(|_| daemon.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("sync"), "ok");
    }
    let refused = machine
        .client_program(&daemon.pipes)
        .arg("info")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(refused.stdout, b"error CUDA_ERROR_DEVICE_UNAVAILABLE\n");
    clients.pop().unwrap().kill();
    assert_eq!(daemon.client().ask("sync"), "ok");
}

/// "A daemon that a user started refuses root: MPS connection failed".
#[test]
fn daemon_of_user_refuses_root() {
    use std::os::unix::process::CommandExt;
    let machine = h100();
    let pipes = machine.make_dir("pipes");
    std::os::unix::fs::chown(&pipes, Some(1000), Some(1000)).unwrap();
    let mut program = machine.control_program(&pipes);
    let log = machine.make_dir("log");
    std::os::unix::fs::chown(&log, Some(1000), Some(1000)).unwrap();
    let started = program
        .arg("-d")
        .uid(1000)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(started.success());
    let output = machine.client_program(&pipes).arg("info").output().unwrap();
    assert_eq!(output.stdout, b"error CUDA_ERROR_MPS_CONNECTION_FAILED\n");
    assert_eq!(machine.control_as(&pipes, 1000, "quit"), "");
}
