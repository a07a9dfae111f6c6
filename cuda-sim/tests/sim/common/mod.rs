//! A machine with MPS, and its daemons and clients, for a test.

pub mod cgroups;
mod nvml;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

pub use nvml::Nvml;
use tempfile::TempDir;

const CUDA_CLIENT: &str = env!("CARGO_BIN_EXE_cuda-client");
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Machine {
    dir: TempDir,
}

/// Returns a machine with one H100 and driver 580.
pub fn h100() -> Machine {
    Machine::new("--gpu H100-80GB --mig off")
}

/// Returns the program `nvml-sim`, which the same build makes.
fn nvml_sim() -> Command {
    let program = Path::new(CUDA_CLIENT).with_file_name("nvml-sim");
    let hint = "nvml-sim is not built: cargo build -p nvml-sim";
    assert!(program.exists(), "{hint}");
    Command::new(program)
}

impl Machine {
    pub fn new(args: &str) -> Machine {
        let machine = Machine {
            dir: TempDir::new().unwrap(),
        };
        // Other users are to find the machine as well.
        fs::set_permissions(machine.dir(), fs::Permissions::from_mode(0o755)).unwrap();
        machine.sim("new", &format!("{args} --mps"));
        // In another process: a descriptor of this one would be inherited by what other tests start meanwhile.
        let mut copy = Command::new("cp");
        copy.arg(CUDA_CLIENT).arg(machine.dir().join("usr/bin"));
        assert!(copy.status().unwrap().success());
        machine
    }

    /// Returns what `nvml-sim VERB DIR ARGS` says, which must succeed.
    pub fn sim(&self, verb: &str, args: &str) -> String {
        let mut command = nvml_sim();
        let args = args.split_whitespace();
        let said = command
            .arg(verb)
            .arg(self.dir())
            .args(args)
            .output()
            .unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap()
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The control program, for the daemon of a pipe directory.
    pub fn control_program(&self, pipes: &Path) -> Command {
        let mut command = Command::new(self.dir().join("usr/bin/nvidia-cuda-mps-control"));
        command.env("CUDA_MPS_PIPE_DIRECTORY", pipes);
        command
    }

    /// Runs commands with the control program, and returns its output whatever comes of it.
    pub fn try_control(&self, pipes: &Path, uid: u32, commands: &str) -> Output {
        let mut child = self
            .control_program(pipes)
            .uid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // A program that fails reads nothing.
        let _ = writeln!(input, "{commands}");
        drop(input);
        child.wait_with_output().unwrap()
    }

    /// Runs a command as a user. The control program succeeds even if the daemon refuses it.
    pub fn control_as(&self, pipes: &Path, uid: u32, command: &str) -> String {
        let output = self.try_control(pipes, uid, command);
        assert!(output.status.success(), "{command}: {output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        said.trim_end().to_owned()
    }

    /// A test client of the daemon in a pipe directory.
    pub fn client_program(&self, pipes: &Path) -> Command {
        let mut command = Command::new(self.dir().join("usr/bin/cuda-client"));
        command.env("CUDA_CLIENT_LIBRARY", self.dir().join("lib/libcuda.so.1"));
        command.env("CUDA_MPS_PIPE_DIRECTORY", pipes);
        command
    }

    pub fn client(&self, pipes: &Path) -> Client {
        Client::start(&mut self.client_program(pipes))
    }

    /// A client without MPS.
    pub fn plain_client(&self) -> Client {
        self.client(Path::new("/nonexistent"))
    }

    /// Lists processes by a function of NVML's: pids and MiB.
    pub fn processes(&self, function: &str) -> Vec<(u32, u64)> {
        Nvml::open(self).processes(function)
    }
}

/// A control daemon in the foreground, until this value is dropped.
pub struct Daemon<'a> {
    machine: &'a Machine,
    pub pipes: PathBuf,
    child: Child,
    log: Arc<(Mutex<Vec<String>>, Condvar)>,
}

impl<'a> Daemon<'a> {
    /// Starts a daemon for all users, as the driver of most tests does.
    pub fn start(machine: &'a Machine) -> Daemon<'a> {
        Daemon::start_in(machine, &machine.dir().join("pipes"), "-M", &[])
    }

    /// Starts a daemon, and returns when it listens.
    pub fn start_in(
        machine: &'a Machine,
        pipes: &Path,
        multiuser: &str,
        variables: &[(&str, &str)],
    ) -> Daemon<'a> {
        let mut child = machine
            .control_program(pipes)
            .arg("-f")
            .arg(multiuser)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let log = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let copy = log.clone();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                copy.0.lock().unwrap().push(line);
                copy.1.notify_all();
            }
        });
        let pipes = pipes.to_path_buf();
        let daemon = Daemon {
            machine,
            pipes,
            child,
            log,
        };
        daemon.wait_for_log("Start");
        daemon
    }

    pub fn wait_for_log(&self, text: &str) {
        let lines = self.log.0.lock().unwrap();
        let lacks = |lines: &mut Vec<String>| !lines.iter().any(|line| line.contains(text));
        let waited = self.log.1.wait_timeout_while(lines, PATIENCE, lacks);
        let (lines, waited) = waited.unwrap();
        assert!(!waited.timed_out(), "no {text:?} in {lines:#?}");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn control(&self, command: &str) -> String {
        self.machine.control_as(&self.pipes, 0, command)
    }

    pub fn limited(self, value: &str) -> Daemon<'a> {
        let command = format!("set_default_device_pinned_mem_limit 0 {value}");
        assert_eq!(self.control(&command), "");
        self
    }

    pub fn server(&self) -> u32 {
        self.control("get_server_list").parse().unwrap()
    }

    pub fn client(&self) -> Client {
        self.machine.client(&self.pipes)
    }

    /// Makes a directory with nothing but a hard link to `control`, or renews the link by rename.
    pub fn door(&self, name: &str) -> PathBuf {
        let door = self.machine.dir().join(name);
        fs::create_dir_all(&door).unwrap();
        let new = self.machine.dir().join("new-link");
        fs::hard_link(self.pipes.join("control"), &new).unwrap();
        fs::rename(&new, door.join("control")).unwrap();
        door
    }

    /// Ends the daemon with a signal, and returns after its end.
    pub fn end(&mut self, signal: i32) {
        send_signal(self.pid(), signal);
        assert_eq!(self.child.wait().unwrap().signal(), Some(signal));
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A test client that takes commands, until this value is dropped.
pub struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    pub fn start(command: &mut Command) -> Client {
        command
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Client {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives a command and returns the answer. A client that could not start has one answer.
    pub fn ask(&mut self, command: &str) -> String {
        // A client that could not start reads nothing.
        let _ = writeln!(self.input, "{command}");
        self.answer()
    }

    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns the free MiB.
    pub fn free(&mut self) -> u64 {
        let line = self.ask("info");
        let free = line.split(' ').nth(3).and_then(|word| word.parse().ok());
        free.unwrap_or_else(|| panic!("{line:?}"))
    }

    /// Ends the client with SIGKILL, and returns after its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn send_signal(pid: u32, signal: i32) {
    cuda_sim::sys::kill(pid, signal);
}
