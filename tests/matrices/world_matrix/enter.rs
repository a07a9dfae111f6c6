//! Ways into a world. All of them change a process or a mount namespace of its own, and nothing of the
//! machine, so that many worlds can be open at once.

use crate::world_matrix::kernel::Filter;
use crate::world_matrix::node::Node;
use testkit::prelude::*;

/// The surroundings of a call, until this is left.
#[derive(Default)]
pub struct Inside {
    /// The words before the program: what makes the world, and runs the program in it.
    pub prefix: Vec<String>,
    pub filter: Option<Filter>,
    undo: Undo,
    /// Containers that are made here are deleted here: outside, their process has another number, or
    /// another start.
    pub keeps_containers: bool,
    /// Leases that are made here are in another ledger than those outside.
    pub has_own_ledger: bool,
    /// The ledger cannot be read. A delete goes on without, since the container's hook tells.
    pub hides_ledger: bool,
    /// The container's bundle is not where it was.
    pub hides_bundle: bool,
    keeper: Option<Going>,
}

/// Puts the normal world back.
#[derive(Default)]
struct Undo(Vec<Box<dyn FnOnce()>>);

impl Drop for Undo {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|undo| undo());
    }
}

impl Inside {
    pub fn and_leave(mut self, undo: impl FnOnce() + 'static) -> Inside {
        self.undo.0.push(Box::new(undo));
        self
    }

    pub fn keeping_containers(mut self) -> Inside {
        self.keeps_containers = true;
        self
    }

    pub fn with_own_ledger(mut self) -> Inside {
        self.has_own_ledger = true;
        self.keeping_containers()
    }

    pub fn without_ledger(mut self) -> Inside {
        self.hides_ledger = true;
        self
    }

    pub fn without_bundle(mut self) -> Inside {
        self.hides_bundle = true;
        self
    }

    /// Puts the normal world back. Calls can still be made inside where `keeps_containers`.
    pub fn leave(&mut self) {
        drop(std::mem::take(&mut self.undo));
    }
}

/// A program that changes itself and then becomes the one that is called.
pub fn through(words: &[&str]) -> Inside {
    Inside {
        prefix: words.iter().map(|word| (*word).to_owned()).collect(),
        ..Inside::default()
    }
}

/// A shell that does something before.
pub fn shell(script: &str) -> Inside {
    let script = format!("set -e\n{script}\nexec \"$@\"");
    through(&["sh", "-c", &script, "sh"])
}

/// Namespaces of its own for each call, and something done in them. In a shell script `$NODE` is the
/// node's folder.
pub fn namespaces(node: &Node, options: &str, script: &str) -> Inside {
    let mut inside = through(&["unshare"]);
    inside.prefix.extend(options.split(' ').map(str::to_owned));
    let here = node.path("").display().to_string();
    let here = here.trim_end_matches('/');
    let script = format!("NODE={here}\n{script}");
    inside.prefix.extend(shell(&script).prefix);
    inside
}

/// A mount namespace of its own for each call.
pub fn mounts(node: &Node, script: &str) -> Inside {
    namespaces(node, "--mount", script)
}

/// A pid namespace. The stub's containers end with its first process, which they can see.
pub fn pid_namespace(options: &[&str], joined: &[&str]) -> Inside {
    let options = [&["--pid", "--mount"], options].concat();
    let mut inside = kept_namespace(&options, joined);
    let words = ["env", "STUB_RUNTIME_TEST_PID=1"];
    inside.prefix.extend(words.map(str::to_owned));
    inside
}

/// Namespaces that last until the world is dropped: all calls are made in the same.
pub fn kept_namespace(options: &[&str], joined: &[&str]) -> Inside {
    kept_namespace_from(None, options, joined)
}

/// The same, made in a cgroup, from which a cgroup namespace counts.
pub fn kept_namespace_from(cgroup: Option<&Path>, options: &[&str], joined: &[&str]) -> Inside {
    let enter = cgroup.map(|dir| format!("echo $$ > {}/cgroup.procs;", dir.display()));
    let script = format!("{} exec unshare \"$@\"", enter.unwrap_or_default());
    let mut unshare = Command::new("sh");
    unshare.args(["-ec", &script, "sh", "--fork", "--kill-child"]);
    unshare.args(options).args(["--", "sleep", "infinity"]);
    let keeper = going(&mut unshare);
    let mut first = None;
    until("the namespace is there", || {
        let mut below = children(keeper.pid()).into_iter();
        first = below.find(|pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "sleep")
        });
        first.is_some()
    });
    let target = first.unwrap().to_string();
    if let Some(parent) = cgroup.and_then(Path::parent) {
        for pid in [keeper.pid().to_string(), target.clone()] {
            std::fs::write(parent.join("cgroup.procs"), pid).unwrap();
        }
    }
    let mut inside = through(&["nsenter", "--target", &target]);
    inside.prefix.extend(joined.iter().map(|j| (*j).to_owned()));
    inside.prefix.push("--".to_owned());
    inside.keeper = Some(keeper);
    inside.keeping_containers()
}
