//! Decides the liveness of a container. Taking a slice from a running container is the worst failure of
//! runmig. So every sign counts, and a doubt counts as life.

use crate::error::{Error, Result};
use crate::leases::Leases;
use crate::model::{Namespaces, Process};
use crate::process::{self, Host, Reads, Sight, View};
use crate::store::{Claim, Holder, Key, Lease, LeaseState};
use crate::trust;
use serde::Deserialize;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Looks for signs of life, through reads that a test can make fail.
pub struct Liveness<'a> {
    reads: &'a dyn Reads,
    view: &'a View,
}

/// Returns the namespaces of this process, for a record of its container. It fails if no process could tell
/// from that record whether the container lives.
pub(crate) fn namespaces() -> Result<Namespaces> {
    let view = Liveness::here().view;
    match &view.obstacle {
        None => Ok(view.namespaces.clone()),
        Some(why) => Err(
            Error::new(format!("cannot record a container's processes: {why}"))
                .hint("run the engine as root, with the /proc of its own pid namespace at /proc"),
        ),
    }
}

impl Leases<'_> {
    /// Returns the process that makes the container of a lease, unless it called this one.
    pub fn is_made_by_others(&self, lease: &Lease) -> Option<String> {
        let is_ours = |maker: &Process| process::is_ancestor(maker);
        let makers = || std::iter::once(lease.creator).chain(lease.runtime_process);
        if lease.state != LeaseState::Pending || makers().any(|m| is_ours(&m)) {
            return None;
        }
        Liveness::here().maker(lease, &self.store.operations())
    }
}

/// Returns why this process cannot tell whether the container of a lease lives.
pub fn unseen(lease: &Lease) -> Option<String> {
    // A claim's lease needs no look at processes.
    if lease.state == LeaseState::Releasing || lease.claim().is_some() {
        return None;
    }
    let here = Liveness::here();
    match here.sight(lease) {
        Sight::Clear => here.blocked_from_cgroups(lease),
        Sight::Ended => None,
        Sight::Blocked(why) => Some(why),
    }
}

/// The hint for a lease that stays because runmig cannot see its container.
pub const UNSEEN_HINT: &str =
    "run migctl gc as root on the host, in the namespaces of the engine that made the container";

/// Returns whether a container exists, and this process can tell whether it lives.
pub(super) fn is_visible(lease: &Lease) -> bool {
    lease.state == LeaseState::Ready && unseen(lease).is_none()
}

/// Returns the init that the low-level runtime of a lease recorded; see `Liveness::own_init`.
pub(crate) fn own_init(lease: &Lease) -> Option<Process> {
    Liveness::here().own_init(lease).ok().flatten()
}

/// The time that a container may take to end after the low-level runtime has killed and deleted it. On a busy
/// machine its cgroup stays populated for a while. runc waits for its init as long.
pub(crate) const AFTER_DELETE: Duration = Duration::from_secs(10);

/// The same for a container that may live on.
pub(crate) const A_MOMENT: Duration = Duration::from_millis(250);

/// Returns a sign of life that lasts for this time. A container that was just killed takes a moment to end.
pub(crate) fn lasting(time: Duration, sign_of_life: impl Fn() -> Option<String>) -> Option<String> {
    let (begun, mut gap) = (Instant::now(), Duration::from_millis(1));
    loop {
        let sign = sign_of_life()?;
        if begun.elapsed() >= time {
            return Some(sign);
        }
        crate::effect::pause(gap);
        gap = (gap * 2).min(Duration::from_millis(100));
    }
}

impl Liveness<'_> {
    /// Judges by this process's own view of the machine.
    pub fn here() -> Liveness<'static> {
        static VIEW: OnceLock<View> = OnceLock::new();
        let view = || View::new(&Host, std::process::id(), trust::is_host_root());
        Liveness::new(&Host, VIEW.get_or_init(view))
    }
}

impl<'a> Liveness<'a> {
    /// Judges by these reads, from this view.
    pub fn new(reads: &'a dyn Reads, view: &'a View) -> Self {
        Liveness { reads, view }
    }

    /// Returns the first sign, in words, that the operation, the low-level runtime or the container of a lease lives.
    /// `operations` is the folder of the operations at work.
    pub fn sign_of_life(&self, lease: &Lease, operations: &Path) -> Option<String> {
        self.where_seen(lease, || {
            { self.operation(lease, operations) }.or_else(|| self.runtime_or_container(lease))
        })
    }

    /// Returns a sign of life other than the operation, which is the caller's.
    pub(crate) fn outlives_its_front(&self, lease: &Lease) -> Option<String> {
        self.where_seen(lease, || self.runtime_or_container(lease))
    }

    /// Returns a sign that the container of a lease lives. Its low-level runtime does not count, since it waits for this
    /// process at a poststop hook.
    pub fn container_lives(&self, lease: &Lease) -> Option<String> {
        self.where_seen(lease, || self.container(lease))
    }

    fn maker(&self, lease: &Lease, operations: &Path) -> Option<String> {
        self.where_seen(lease, || {
            self.operation(lease, operations).or_else(|| {
                let runtime = lease.runtime_process.filter(|r| self.lives(r))?;
                Some(is_making(&runtime))
            })
        })
    }

    /// Returns whether the operation of a lease has certainly ended.
    pub(crate) fn operation_is_over(&self, lease: &Lease, operations: &Path) -> bool {
        match self.sight(lease) {
            Sight::Clear => self.operation(lease, operations).is_none(),
            Sight::Ended => true,
            Sight::Blocked(_) => false,
        }
    }

    /// Returns a sign that the operation of a lease is at work.
    fn operation(&self, lease: &Lease, operations: &Path) -> Option<String> {
        let is_at_work = match &lease.operation {
            None => self.lives(&lease.creator),
            Some(id) if !is_plain(id.as_str()) => {
                return Some("its operation has no valid id".to_owned());
            }
            Some(id) => {
                let file = operations.join(id.as_str());
                match self.reads.is_locked(&file) {
                    Ok(is_locked) => is_locked,
                    Err(e) => {
                        let file = file.display();
                        return Some(format!("its operation cannot be read: {file}: {e}"));
                    }
                }
            }
        };
        is_at_work.then(|| is_making(&lease.creator))
    }

    fn sight(&self, lease: &Lease) -> Sight {
        let namespaces = lease.namespaces.as_ref();
        self.view.of_processes(self.reads, namespaces)
    }

    /// Returns the judgement if processes are visible here. A container that runmig cannot see counts as
    /// alive.
    fn where_seen(&self, lease: &Lease, judge: impl FnOnce() -> Option<String>) -> Option<String> {
        match self.sight(lease) {
            Sight::Clear => judge(),
            Sight::Ended => None,
            Sight::Blocked(why) => Some(unknown(&why)),
        }
    }

    fn lives(&self, process: &Process) -> bool {
        process::is_alive_by(self.reads, process)
    }

    fn runtime_or_container(&self, lease: &Lease) -> Option<String> {
        let runtime = lease.runtime_process.filter(|runtime| self.lives(runtime));
        match runtime {
            Some(runtime) => Some(format!(
                "its low-level runtime, process {}, is at work",
                runtime.pid
            )),
            None => self.container(lease),
        }
    }

    fn container(&self, lease: &Lease) -> Option<String> {
        if let Some(init) = lease.init.filter(|init| self.lives(init)) {
            return Some(format!("its init, process {}, runs", init.pid));
        }
        if lease.state == LeaseState::Pending {
            match self.own_init(lease) {
                Ok(Some(init)) if self.lives(&init) => {
                    return Some(format!("its init, process {}, runs", init.pid));
                }
                Ok(_) => {}
                Err(e) => {
                    return Some(format!(
                        "what its low-level runtime wrote cannot be read: {e}"
                    ));
                }
            }
        }
        if let Some(why) = self.blocked_from_cgroups(lease) {
            return Some(unknown(&why));
        }
        match process::in_cgroup(self.reads, &lease.cgroups) {
            Ok(pid) => pid.map(|pid| format!("process {pid} lives in its cgroup")),
            Err(e) => Some(format!("who lives in its cgroup cannot be read: {e}")),
        }
    }

    fn blocked_from_cgroups(&self, lease: &Lease) -> Option<String> {
        if lease.cgroups.is_empty() {
            return None;
        }
        match self.view.of_cgroups(lease.namespaces.as_ref()) {
            Sight::Blocked(why) => Some(why),
            Sight::Clear | Sight::Ended => None,
        }
    }

    /// Returns the init that the low-level runtime of a lease recorded. One that began before that is of another
    /// container of the id.
    fn own_init(&self, lease: &Lease) -> Result<Option<Process>, String> {
        let recorded = lease.container().map(|c| self.recorded_init(&c.key));
        let begun = lease.runtime_process.map_or(0, |r| r.start_time);
        Ok({ recorded.unwrap_or(Ok(None))? }.filter(|init| init.start_time >= begun))
    }

    /// Returns the init that the low-level runtime recorded: runc and its relatives in `state.json`, crun
    /// in `status`. Returns none without such a record, which is no sign of death.
    pub fn recorded_init(&self, key: &Key) -> Result<Option<Process>, String> {
        // An id is one path component; low-level runtimes refuse any other.
        if key.id.is_empty() || key.id.contains('/') || key.id == "." || key.id == ".." {
            return Ok(None);
        }
        let dir = key.root.join(&key.id);
        let files = ["state.json", "status"].map(|file| dir.join(file));
        if !self.reads.answers(&files) {
            let dir = dir.display();
            return Err(format!("the file system of {dir} does not answer"));
        }
        for file in files {
            let bytes = match self.reads.file(&file) {
                Ok(bytes) => bytes,
                Err(e) if cannot_be_there(&e) => continue,
                Err(e) => return Err(format!("{}: {e}", file.display())),
            };
            // The record is incomplete: the low-level runtime is writing it, or died there. The cgroup
            // decides.
            if let Ok(Recorded { pid, start_time }) = serde_json::from_slice(&bytes) {
                return Ok(Some(Process { pid, start_time }));
            }
        }
        Ok(None)
    }
}

/// The init in a low-level runtime's record: its fields in runc's `state.json`, and in crun's `status`.
#[derive(Deserialize)]
struct Recorded {
    #[serde(alias = "init_process_pid")]
    pid: i32,
    #[serde(alias = "init_process_start", rename = "process-start-time")]
    start_time: u64,
}

/// Returns whether a failed read proves that no low-level runtime has a record at such a path. A low-level
/// runtime could not have written a record there either.
fn cannot_be_there(e: &std::io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP)
    )
}

/// Returns whether an id names a file in a folder, and no other.
fn is_plain(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn is_making(process: &Process) -> String {
    format!("process {} is making it", process.pid)
}

fn unknown(why: &str) -> String {
    format!("runmig cannot see from here whether it lives: {why}")
}

impl Leases<'_> {
    /// Says what shows that the holder of a lease still exists. What cannot be found out counts as such a sign.
    pub fn sign_of_life(&self, lease: &Lease) -> Option<String> {
        match &lease.holder {
            Holder::Container(_) => Liveness::here().sign_of_life(lease, &self.store.operations()),
            Holder::Claim(claim) => Some(claim_lives(claim)),
        }
    }
}

/// Returns why a collector may release a lease that is not *releasing*, or else why it stays.
pub(super) fn withdrawal(context: &Leases<'_>, lease: &Lease) -> Result<String, String> {
    match &lease.holder {
        Holder::Container(_) => match context.sign_of_life(lease) {
            Some(life) => Err(life),
            None if lease.state == LeaseState::Pending => {
                Ok("its create is over, and it has no container".to_owned())
            }
            None => Ok("its container is gone".to_owned()),
        },
        Holder::Claim(claim) => Err(claim_lives(claim)),
    }
}

/// Returns why a claim keeps its lease, whatever its pods and operations do.
fn claim_lives(claim: &Claim) -> String {
    format!("only Kubernetes withdraws {claim}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::tests::{GONE, Living, config, of_killed, open, record_init};
    use std::sync::Arc;

    #[test]
    fn each_part_of_a_create_is_a_sign_of_its_own() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let (_living, alive) = Living::new();
        let (here, pid) = (Liveness::here(), alive.pid);
        let works = Some(format!("process {pid} is making it"));
        let makes = Some(format!("its low-level runtime, process {pid}, is at work"));
        let runs = Some(format!("its init, process {pid}, runs"));
        let none = None::<String>;
        let (gone, is_there) = (Some(GONE), Some(alive));
        // The creator, the low-level runtime and the init; then signs of all that makes it, of all but the front, and of the
        // container alone.
        for (creator, runtime, init, [making, outlives, lives]) in rows! {
            GONE, gone, gone => [&none, &none, &none];
            alive, gone, gone => [&works, &none, &none];
            GONE, is_there, gone => [&works, &makes, &none];
            GONE, None, is_there => [&none, &runs, &runs];
        } {
            let mut held = of_killed(&leases, "web");
            let lease = Arc::make_mut(&mut held.lease);
            (lease.creator, lease.runtime_process, lease.init) = (creator, runtime, init);
            let operations = leases.store.operations();
            let all = [
                &here.maker(lease, &operations),
                &here.outlives_its_front(lease),
                &here.container_lives(lease),
                &leases.is_made_by_others(lease),
            ];
            assert_eq!(all, [making, outlives, lives, making], "{lease:?}");
            let is_over = here.operation_is_over(lease, &operations);
            assert_eq!(is_over, creator == GONE, "{lease:?}");
        }
    }

    /// A create does not wait for itself, nor for what has made a container that exists.
    #[test]
    fn nobody_else_makes_own_or_finished_container() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let (_living, alive) = Living::new();
        for (state, creator) in [
            (LeaseState::Pending, process::current()),
            (LeaseState::Ready, alive),
        ] {
            let mut held = of_killed(&leases, "web");
            let lease = Arc::make_mut(&mut held.lease);
            (lease.state, lease.creator) = (state, creator);
            assert_eq!(leases.is_made_by_others(lease), None, "{state:?}");
        }
    }

    #[test]
    fn recorded_init_counts_while_it_lives() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let (_living, alive) = Living::new();
        for (init, is_alive) in [(alive, true), (GONE, false)] {
            let held = of_killed(&leases, "web");
            record_init(&held, init);
            let lives = Liveness::here().container_lives(&held.lease);
            assert_eq!(lives.is_some(), is_alive, "{init:?}");
        }
    }

    /// Processes of another time namespace have other start times here.
    #[test]
    fn doubt_counts_as_life() {
        let (_dir, config) = config("");
        let leases = open(&config);
        let mut held = of_killed(&leases, "web");
        let lease = Arc::make_mut(&mut held.lease);
        lease.namespaces.as_mut().unwrap().time = Some("another".to_owned());
        let life = leases.sign_of_life(lease).unwrap();
        let begin = "runmig cannot see from here whether it lives: ";
        assert!(
            life.starts_with(begin) && life.len() > begin.len(),
            "{life}"
        );
    }
}
