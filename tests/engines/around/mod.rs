//! Ways round the limit of a share at `mps`: from the container's side, and as the operator sees them.

mod collecting;
mod escapes;
mod levels;
mod programs;

use crate::mps::{CONTEXT, control, on};
use testkit::cuda::{self, Client, free};
use testkit::prelude::*;

const SHARE: &str = "runmig.dev/share";
/// The share of every container here, in MiB.
const MEMORY: u64 = 4096;
/// The memory that a process sees as free under the limit, in MiB.
const HELD: u64 = MEMORY - CONTEXT;
/// A variable that leads CUDA past the socket of the container's daemon.
const ELSEWHERE: [&str; 2] = ["--env", "CUDA_MPS_PIPE_DIRECTORY=/nowhere"];

fn on_two(low: Low) -> Setup {
    Setup::on(low, Machine::of("--gpu L4 --count 2 --mig off --mps"))
}

/// A container with a share whose init is a client that takes commands.
struct Holder {
    id: String,
    bundle: Bundle,
    first: Client,
}

impl Holder {
    fn start(setup: &Setup) -> Holder {
        Holder::with(setup, |_| ())
    }

    /// The same, of a bundle changed before.
    fn with(setup: &Setup, change: impl FnOnce(&Bundle)) -> Holder {
        let (id, bundle) = (unique(), setup.bundle("exec sleep 1000"));
        bundle.annotate(SHARE, "4Gi");
        change(&bundle);
        let first = Client::run(setup, &bundle, &id);
        Holder::of(setup, id, bundle, first)
    }

    /// The same, of a container that runs.
    fn of(setup: &Setup, id: String, bundle: Bundle, mut first: Client) -> Holder {
        assert_eq!(free(&mut first), HELD);
        until("the share is ready", || {
            setup.lease(&id)["state"] == "ready"
        });
        Holder { id, bundle, first }
    }

    /// Starts a client beside the first. Returns it with its pid on the host.
    fn exec(&self, setup: &Setup, options: &[&str]) -> (Client, i32) {
        let before = self.pids();
        let mut client = Client::exec(setup, &self.id, options);
        free(&mut client);
        let mut new: Vec<i32> = self.pids().difference(&before).copied().collect();
        new.retain(|pid| is_client(*pid));
        assert_eq!(new.len(), 1, "{new:?}");
        (client, new[0])
    }

    /// Returns the processes in the container's cgroup.
    fn pids(&self) -> BTreeSet<i32> {
        in_cgroup(&self.bundle.cgroup()).into_iter().collect()
    }

    #[track_caller]
    fn lease(&self, setup: &Setup) -> Value {
        setup.lease(&self.id)
    }

    /// Fails unless the operator sees these gaps in the limit of the container, and no other.
    #[track_caller]
    fn shows(&self, setup: &Setup, around: &[i32], limit: Option<u64>, is_over: bool) {
        let lease = self.lease(setup);
        assert_eq!(lease["around"], json!(around), "{lease:#}");
        assert_eq!(lease["limitChanged"], json!(limit), "{lease:#}");
        let over = lease["overBytes"].as_u64().expect("the memory is known");
        assert_eq!(over > 0, is_over, "{lease:#}");
        let list = setup.migctl(&["list"]).ok();
        let row = list.stdout.lines().find(|line| line.starts_with(&self.id));
        let row = row.unwrap_or_else(|| panic!("{}", list.stdout));
        assert_eq!(row.contains("around MPS"), !around.is_empty(), "{row}");
        assert_eq!(row.contains("limit changed"), limit.is_some(), "{row}");
        for (words, is_told) in [
            ("does not limit process", !around.is_empty()),
            ("the memory limit of container", limit.is_some()),
            ("cannot", false),
        ] {
            let mut lines = list.stderr.lines();
            let told = lines.any(|l| l.contains(words) && l.contains(&self.id));
            assert_eq!(told, is_told, "{words}: {}", list.stderr);
        }
    }

    fn daemon(&self, setup: &Setup) -> i32 {
        setup.daemon(&self.id)
    }

    /// Returns the pid of the daemon's server.
    fn server(&self, setup: &Setup) -> i32 {
        let children = testkit::process::children(self.daemon(setup));
        assert_eq!(children.len(), 1, "{children:?}");
        children[0]
    }

    /// Runs a command of the control program in the container, with options for `exec`, and returns the answer.
    #[track_caller]
    fn tell(&self, setup: &Setup, options: &[&str], command: &str) -> String {
        let script = format!("echo '{command}' | {} 2>&1", control(setup).display());
        let arguments = [&["exec"], options, &[&self.id, "/bin/sh", "-c", &script]].concat();
        setup.runmig(&arguments).stdout
    }

    /// Has root of the container raise its limit. Returns the answer.
    #[track_caller]
    fn raises(&self, setup: &Setup) -> String {
        let raise = format!("set_device_pinned_mem_limit {} 0 16G", self.server(setup));
        self.tell(setup, &[], &raise)
    }

    /// Kills the container.
    #[track_caller]
    fn dies(self, setup: &Setup) {
        drop(self.first);
        until("the share is released", || setup.leases().is_empty());
        setup.nothing_is_left();
    }

    #[track_caller]
    fn end(self, setup: &Setup) {
        self.first.end();
        setup.nothing_is_left();
    }
}

/// Returns whether a process runs the client.
fn is_client(pid: i32) -> bool {
    let exe = fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_ok_and(|exe| exe.ends_with("cuda-client"))
}

/// Returns the row of a container in what `gc` says.
#[track_caller]
fn row<'a>(said: &'a str, id: &str) -> &'a str {
    let row = said.lines().find(|line| line.starts_with(id));
    row.unwrap_or_else(|| panic!("{said}"))
}
