//! CUDA programs in containers: the test client over the simulated libcuda, with the host's system libraries.

use crate::prelude::*;
use std::io::PipeWriter;

/// The path of the client in a container.
pub const CLIENT: &str = "/client/cuda-client";

/// Puts the client into a bundle: its container runs it with these commands.
pub fn put(bundle: &Bundle, machine: &Machine, commands: &[&str]) {
    crate::program("cuda-client");
    bundle.edit(|config| {
        let library = library(machine);
        let process = &mut config["process"];
        process["args"] = json!([CLIENT]);
        let args = process["args"].as_array_mut().unwrap();
        args.extend(commands.iter().map(|c| Value::from(*c)));
        process["env"].as_array_mut().unwrap().push(library.into());
        let all = config["mounts"].as_array_mut().unwrap();
        all.extend(mounts(machine).iter().map(|mount| {
            json!({
                "destination": mount.inside, "source": mount.host, "type": "bind",
                "options": ["rbind", if mount.read_only { "ro" } else { "rw" }],
            })
        }));
    });
}

/// A folder of the host in a container.
pub struct Mount {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub read_only: bool,
}

impl Mount {
    /// As podman and docker take it.
    pub fn volume(&self) -> String {
        let access = if self.read_only { "ro" } else { "rw" };
        format!("{}:{}:{access}", self.host.display(), self.inside.display())
    }
}

/// Returns what a container with the client needs.
pub fn mounts(machine: &Machine) -> Vec<Mount> {
    let mount = |host: &Path, inside: &Path, read_only| Mount {
        host: host.to_owned(),
        inside: inside.to_owned(),
        read_only,
    };
    let dir = machine.dir();
    let same = |path: &str| mount(Path::new(path), Path::new(path), true);
    let programs = crate::programs();
    vec![
        same("/usr"),
        same("/lib"),
        same("/lib64"),
        mount(&programs, Path::new("/client"), true),
        mount(&dir, &dir, false),
        // The driver knows a process by its number on the host.
        mount(Path::new("/proc"), &dir.join("host-proc"), true),
    ]
}

/// Returns the variable by which the loader finds the simulated libcuda.
pub fn library(machine: &Machine) -> String {
    format!("LD_LIBRARY_PATH={}", machine.dir().join("lib").display())
}

/// A client that takes commands.
pub struct Client {
    going: Going,
    commands: PipeWriter,
    answers: usize,
}

impl Client {
    /// Starts a container of a bundle whose client reads commands, in the foreground.
    pub fn run(setup: &Setup, bundle: &Bundle, id: &str) -> Client {
        put(bundle, &setup.machine, &["-"]);
        Client::of(&mut setup.command(&["run", "-b", bundle.as_str(), id]))
    }

    /// Starts one beside it.
    pub fn exec(setup: &Setup, id: &str, options: &[&str]) -> Client {
        let library = library(&setup.machine);
        let arguments = [&["exec", "--env", &library], options, &[id, CLIENT, "-"]].concat();
        Client::of(&mut setup.command(&arguments))
    }

    pub fn of(command: &mut Command) -> Client {
        let (read, commands) = std::io::pipe().unwrap();
        Client {
            going: going(command.stdin(read)),
            commands,
            answers: 0,
        }
    }

    /// Returns the answer to a command.
    #[track_caller]
    pub fn say(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    /// Sends a command without waiting for its answer.
    pub fn tell(&mut self, command: &str) {
        // A client that has ended says why where it should answer.
        let _ = writeln!(self.commands, "{command}");
    }

    #[track_caller]
    pub fn answer(&mut self) -> String {
        let at = self.answers;
        let line = |said: &str| said.split_inclusive('\n').nth(at).map(str::to_owned);
        let mut answer = None;
        until("the client answers", || {
            let ended = self.going.ended();
            let said = self.going.said_so_far();
            answer = line(&said).filter(|line| line.ends_with('\n'));
            let is_well = answer.is_some() || ended.is_none();
            assert!(is_well, "the client has ended, {ended:?}: {said}");
            answer.is_some()
        });
        self.answers += 1;
        answer.unwrap().trim_end().to_owned()
    }

    /// Ends it by the end of its input.
    #[track_caller]
    pub fn end(self) {
        drop(self.commands);
        self.going.end().ok();
    }

    pub fn going(self) -> Going {
        self.going
    }
}

/// Starts a container with this request whose client takes commands. Returns its id, its bundle and the client.
pub fn client(setup: &Setup, asks: &[(&str, &str)]) -> (String, Bundle, Client) {
    let (id, bundle) = (unique(), setup.bundle_with(asks));
    let mut client = Client::run(setup, &bundle, &id);
    free(&mut client);
    until("the share is ready", || {
        setup.lease(&id)["state"] == "ready"
    });
    (id, bundle, client)
}

/// Returns the free memory that a client sees, in MiB.
#[track_caller]
pub fn free(client: &mut Client) -> u64 {
    let said = client.say("info");
    let last = said.rsplit(' ').next().and_then(|word| word.parse().ok());
    last.unwrap_or_else(|| panic!("{said}"))
}

/// A script that prints the names at CUDA's default for the socket of an MPS daemon.
pub const SOCKETS: &str = "echo SOCKETS $(ls /tmp/nvidia-mps 2>&1)";

/// The line of that script in a container with a daemon of its own.
pub const HAS_SOCKET: &str = "SOCKETS control\n";
