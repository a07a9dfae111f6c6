//! The node: up with its first use, with runmig installed and a simulated GPU, down with its drop.

use testkit::prelude::*;

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");
/// For a command on the node; under emulation each takes 20 to 40 times as long.
const LIMIT: Duration = Duration::from_secs(300);
/// For what boots the node or makes its image: `scripts/node` gives up earlier, and says why.
const BOOT_LIMIT: Duration = Duration::from_secs(1200);

/// Image of the podman and containerd cases: busybox.
pub const IMAGE: &str = "localhost/bb:1";
/// Folder of the simulated machine.
pub const SIM: &str = "/var/lib/sim";

pub struct Node {
    dir: PathBuf,
    /// Absent if another program started the node.
    own: Option<TempDir>,
}

/// Returns the programs that a node needs and this machine lacks.
pub fn missing() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the emulated node is an x86_64");
    }
    if !nix::unistd::geteuid().is_root() {
        return Some("the emulated node's image is made by root");
    }
    for tool in ["qemu-system-x86_64", "mmdebstrap", "ssh", "busybox"] {
        if testkit::runtimes::on_path(tool).is_none() && !Path::new("/bin").join(tool).exists() {
            let why = "no qemu-system-x86_64, mmdebstrap, ssh or busybox; run scripts/setup node";
            return Some(why);
        }
    }
    None
}

impl Node {
    pub fn start() -> Result<Node, String> {
        let node = match std::env::var_os("RUNMIG_NODE") {
            Some(dir) => Node {
                dir: dir.into(),
                own: None,
            },
            None => {
                let own = tempfile::Builder::new()
                    .prefix("runmig-node-")
                    .tempdir()
                    .expect("a temporary folder");
                let node = Node {
                    dir: own.path().to_owned(),
                    own: Some(own),
                };
                let test = std::process::id().to_string();
                node.script(&["up", "--for", &test], BOOT_LIMIT)?;
                node
            }
        };
        super::install::prepare(&node)?;
        Ok(node)
    }

    /// `scripts/node ARGUMENTS`; where it fails, what it said.
    fn script(&self, arguments: &[&str], limit: Duration) -> Result<Said, String> {
        let said = self.command(arguments).end_within(limit);
        match said.status.success() {
            true => Ok(said),
            false => Err(format!(
                "scripts/node {arguments:?}: {}\n{}{}",
                said.status, said.stdout, said.stderr
            )),
        }
    }

    fn command(&self, arguments: &[&str]) -> testkit::Going {
        let mut command = Command::new(Path::new(REPOSITORY).join("scripts/node"));
        command.env("NODE_DIR", &self.dir).args(arguments);
        going(command.stdin(Stdio::null()))
    }

    pub fn copy(&self, from: &Path, to: &str) -> Result<(), String> {
        let from = from.to_str().expect("a path in UTF-8");
        self.script(&["copy", from, to], LIMIT).map(drop)
    }

    pub fn reboot(&self) {
        if let Err(why) = self.script(&["reboot"], BOOT_LIMIT) {
            panic!("{why}");
        }
    }

    /// Runs a shell command, as root.
    #[track_caller]
    pub fn run(&self, command: &str) -> Said {
        self.run_within(command, LIMIT)
    }

    #[track_caller]
    pub fn run_within(&self, command: &str, limit: Duration) -> Said {
        self.command(&["exec", command]).end_within(limit)
    }

    /// Runs a shell command in a login of that user.
    #[track_caller]
    pub fn login(&self, user: &str, command: &str) -> Said {
        self.command(&["exec", "--user", user, command])
            .end_within(LIMIT)
    }

    /// Returns the output of a command that has to succeed, without the last line's end.
    #[track_caller]
    pub fn ok(&self, command: &str) -> String {
        self.run(command).ok().stdout.trim_end().to_owned()
    }

    /// Waits until a shell command succeeds.
    #[track_caller]
    pub fn until(&self, condition: &str) {
        let seconds = LIMIT.as_secs() / 2;
        let wait = format!("until {condition}; do sleep 0.5; done");
        let said = self.run(&format!("timeout {seconds} bash -c {}", quote(&wait)));
        if !said.status.success() {
            let look =
                "migctl list; migctl gc --dry-run; systemctl --failed; journalctl -n 30 --no-pager";
            let seen = self.run(look).stdout;
            panic!("never: {condition}\n{}{}\n{seen}", said.stdout, said.stderr);
        }
    }

    /// Returns the output of `migctl list -o json`.
    #[track_caller]
    pub fn leases(&self) -> Vec<Value> {
        let list = self.run("migctl list -o json").ok().json();
        list["items"].as_array().expect("items").clone()
    }

    /// Neither the ledger nor the driver has anything.
    #[track_caller]
    pub fn nothing_is_left(&self) {
        assert_eq!(self.leases(), Vec::<Value>::new());
        assert_eq!(self.instances(), 0);
    }

    /// Neither a daemon of MPS nor its cgroup is there.
    #[track_caller]
    pub fn no_daemon_is_left(&self) {
        let left = self.ok(
            "ls /run/runmig/mps; find /sys/fs/cgroup -name 'runmig-mps-*'; pgrep --list-full nvidia-cuda-mps || true",
        );
        assert_eq!(left, "");
    }

    /// How many GPU instances the driver has.
    #[track_caller]
    pub fn instances(&self) -> usize {
        let shown = self.run(&format!("nvml-sim show {SIM} --json"));
        let shown = shown.ok().json();
        shown["gpus"][0]["gpuInstances"]
            .as_array()
            .map_or(0, Vec::len)
    }

    /// Removes what a case that failed left.
    pub fn clean(&self) {
        let left = self.run("[ -z \"$(podman ps --all --quiet)$(ctr task list --quiet)\" ]");
        if left.status.success() {
            return;
        }
        self.run(
            "podman rm --all --force --time=0
             for id in $(ctr container list --quiet); do
                 ctr task rm --force $id; ctr container rm $id
             done
             migctl gc",
        );
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.own.is_some()
            && let Err(why) = self.script(&["down"], LIMIT)
        {
            eprintln!("{why}");
        }
    }
}

/// A program where cargo built it. The node has it at the same path until a reboot, which empties `/tmp`.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_runmig")).with_file_name(name)
}

/// One word of a shell command.
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Runs it here, which has to succeed.
#[track_caller]
pub fn here(command: &mut Command) -> Said {
    said(command).ok()
}
