//! A simulated machine, runmig on it, and a low-level runtime without containers, for tests that
//! break things. Everything lies in memory where it can: these tests sync thousands of files.
//!
//! ```text
//! DIR/bin/            runmig, runmig-slice, runmig-hook, runmig-claim, migctl, the stub under the names of runc and crun, and
//!                     stub-claims
//! DIR/machine/        the simulated driver
//! DIR/state/          the ledger
//! DIR/root/           what is given as --root: a folder a container, `behaviour`
//! DIR/bundles/ID/
//! ```

pub mod check;
pub mod daemons;
pub mod machine;
pub mod operations;
pub mod simulated;
pub mod steps;
pub mod strace;

use crate::gate::{make_fifo, with_reader};
use crate::prelude::*;
use crate::process::stands_still;
use crate::runtimes::{configuration, install};
use simulated::Simulated;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub struct World {
    dir: TempDir,
    simulated: Simulated,
    bin: Arc<TempDir>,
    pub profile: &'static str,
    pub slots: u32,
    /// The instances of administrators, by generation: they have to stay.
    theirs: Mutex<Vec<u64>>,
    /// The instances of the MPS daemons that were seen.
    daemons: Mutex<BTreeSet<String>>,
}

/// An A30: four memory slices and the fewest profiles, so the quickest to read.
pub const SMALL: (&str, &str, u32) = ("A30-24GB", "1g.6gb", 4);
/// Eight of them make the node of which the issue speaks.
pub const BIG: (&str, &str, u32) = ("A100-80GB", "1g.10gb", 7);

impl World {
    /// A container that has gone without anybody releasing its slice. Gives its lease.
    pub fn abandoned(&self, id: &str) -> String {
        self.create(id);
        self.abandon(id)
    }

    /// Ends a container without anybody releasing its slice. Gives its lease.
    pub fn abandon(&self, id: &str) -> String {
        let lease = self.lease_id(id);
        self.vanish(id);
        lease
    }

    /// Ends a container behind runmig's back, without its hooks.
    pub fn vanish(&self, id: &str) {
        self.behave("no-hooks");
        said(&mut self.bare(&["delete", "--force", id])).ok();
        self.behave("");
    }

    pub fn small() -> World {
        World::of(SMALL, 1)
    }

    /// A small world that keeps the slice of a container which has ended.
    pub fn with_idle_slice() -> (World, machine::Instance) {
        let world = World::small();
        world.configure("keep_idle = \"5m\"");
        world.create("a");
        world.delete("a");
        let idle = world.the_instance();
        (world, idle)
    }

    pub fn of(model: (&str, &'static str, u32), gpus: u32) -> World {
        World::with(model, gpus, 0)
    }

    /// A small world with two GPUs without MIG beside it.
    pub fn with_whole_gpus() -> World {
        World::with(SMALL, 1, 2)
    }

    fn with(
        (model, profile, slots): (&str, &'static str, u32),
        gpus: u32,
        without_mig: u32,
    ) -> World {
        let dir = crate::temporary("runmig-faults-", &home());
        let world = World {
            simulated: machine::new(dir.path().join("machine"), model, gpus, without_mig),
            dir,
            bin: bin(),
            profile,
            slots: slots * gpus,
            theirs: Mutex::default(),
            daemons: Mutex::default(),
        };
        for name in ["root", "bundles"] {
            fs::create_dir(world.path(name)).unwrap();
        }
        world.configure("");
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The folder of the programs.
    pub fn programs(&self) -> PathBuf {
        self.bin.path().to_owned()
    }

    pub fn machine(&self) -> PathBuf {
        self.simulated.0.clone()
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The geometry of GPUs that creates keep.
    pub fn geometry(&self) -> PathBuf {
        self.state().join("geometry")
    }

    pub fn forget_geometry(&self) {
        let _ = fs::remove_file(self.geometry());
    }

    pub fn root(&self) -> PathBuf {
        self.path("root")
    }

    pub fn configure(&self, more: &str) {
        let runtime = self.bin.path().join("runc");
        let text = configuration(&runtime, self.dir.path(), &self.machine(), "none", more);
        fs::write(self.path("config.toml"), text).unwrap();
    }

    /// How the low-level runtime misbehaves from now on, a word a line.
    pub fn behave(&self, words: &str) {
        fs::write(self.root().join("behaviour"), words).unwrap();
    }

    /// One of our programs, with this world's configuration.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.path().join(name));
        command
            .env_clear()
            .env("RUNMIG_CONFIG", self.path("config.toml"))
            .env("STUB_RUNTIME_TEST_PID", std::process::id().to_string())
            .current_dir(self.dir.path());
        command
    }

    fn with_root(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.program(program);
        command.arg("--root").arg(self.root()).args(arguments);
        command
    }

    pub fn runmig(&self, arguments: &[&str]) -> Command {
        self.with_root("runmig", arguments)
    }

    /// The low-level runtime, behind runmig's back.
    pub fn bare(&self, arguments: &[&str]) -> Command {
        self.with_root("runc", arguments)
    }

    pub fn migctl(&self, arguments: &[&str]) -> Command {
        let mut command = self.program("migctl");
        command.args(arguments);
        command
    }

    #[track_caller]
    pub fn ctl(&self, arguments: &[&str]) -> Said {
        said(&mut self.migctl(arguments))
    }

    /// Returns the standard output of a migctl that succeeds.
    #[track_caller]
    pub fn tells(&self, arguments: &[&str]) -> String {
        said(&mut self.migctl(arguments)).ok().stdout
    }

    /// The same as JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        said(&mut self.migctl(arguments)).ok().json()
    }

    /// The items of a list as JSON.
    #[track_caller]
    pub fn items(&self, arguments: &[&str]) -> Vec<Value> {
        crate::setup::items(&self.json(&[arguments, &["-o", "json"]].concat()))
    }

    /// A call for a claim, whose place is the first one of the smallest slice.
    pub fn claims(&self, verb: &str, uid: &str) -> Command {
        let mut command = self.program("stub-claims");
        command.arg(verb).arg(uid);
        if verb != "unprepare" {
            let gpu = &self.engine().gpus[0].uuid;
            command.args([gpu, self.profile, "0", "1"]);
        }
        command
    }

    pub fn create_command(&self, id: &str) -> Command {
        self.make_command("create", id)
    }

    /// `create` or `run`, of a container that asks for the smallest slice.
    pub fn make_command(&self, verb: &str, id: &str) -> Command {
        self.bundle(id);
        let mut command = self.runmig(&[verb, "--bundle"]);
        command.arg(self.path("bundles").join(id)).arg(id);
        command
    }

    /// Starts a create.
    pub fn creating(&self, id: &str) -> Going {
        going(self.create_command(id).stdin(Stdio::null()))
    }

    /// Starts a create whose low-level runtime waits, by this behaviour, until something is written into the pipe. Once that is
    /// closed, it fails.
    pub fn halted(&self, id: &str, behaviour: &str) -> (Going, fs::File) {
        let fifo = self.path("fifo");
        make_fifo(&fifo);
        self.behave(&format!("{behaviour} {}", fifo.display()));
        let create = self.creating(id);
        let pipe = with_reader(&fifo);
        (create, pipe)
    }

    /// Starts these creates at once. Returns the containers that were made, and the lines of the others.
    pub fn create_at_once<S: AsRef<str> + Clone>(&self, ids: &[S]) -> (Vec<S>, Vec<String>) {
        let all: Vec<Going> = ids.iter().map(|id| self.creating(id.as_ref())).collect();
        let (mut made, mut refused) = (Vec::new(), Vec::new());
        for (going, id) in all.into_iter().zip(ids) {
            let said = going.end();
            match said.status.success() {
                true => made.push(id.clone()),
                false => refused.push(said.refused()),
            }
        }
        (made, refused)
    }

    /// Deletes containers at once.
    pub fn delete_at_once<S: AsRef<str>>(&self, ids: &[S]) {
        let delete = |id: &S| self.runmig(&["delete", "--force", id.as_ref()]);
        let begin = |id: &S| going(delete(id).stdin(Stdio::null()));
        let all: Vec<Going> = ids.iter().map(begin).collect();
        all.into_iter().for_each(|one| drop(one.end().ok()));
    }

    /// Returns runmig's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.state().join("runmig.log")).unwrap_or_default()
    }

    #[track_caller]
    pub fn create(&self, id: &str) -> Said {
        said(&mut self.create_command(id)).ok()
    }

    #[track_caller]
    pub fn create_all<S: AsRef<str>>(&self, ids: &[S]) {
        ids.iter().for_each(|id| drop(self.create(id.as_ref())));
    }

    /// Creates a container that asks for this slice.
    #[track_caller]
    pub fn create_asking(&self, id: &str, slice: &str) -> Said {
        self.create_saying(id, &[("runmig.dev/slice", slice)])
    }

    /// Creates a container with these annotations.
    #[track_caller]
    pub fn create_saying(&self, id: &str, annotations: &[(&str, &str)]) -> Said {
        self.bundle_saying(id, annotations);
        self.create(id)
    }

    /// Returns the line of a create that is refused, which has these words.
    #[track_caller]
    pub fn refuses(&self, id: &str, words: &str) -> String {
        let line = said(&mut self.create_command(id)).refused();
        crate::has(&line, words);
        line
    }

    /// The same for a container that asks for this slice.
    #[track_caller]
    pub fn refuses_asking(&self, id: &str, slice: &str, words: &str) -> String {
        self.refuses_saying(id, &[("runmig.dev/slice", slice)], words)
    }

    /// The same for a container with these annotations.
    #[track_caller]
    pub fn refuses_saying(&self, id: &str, annotations: &[(&str, &str)], words: &str) -> String {
        self.bundle_saying(id, annotations);
        self.refuses(id, words)
    }

    #[track_caller]
    pub fn delete(&self, id: &str) -> Said {
        said(&mut self.runmig(&["delete", "--force", id])).ok()
    }

    #[track_caller]
    pub fn delete_all<S: AsRef<str>>(&self, ids: &[S]) {
        ids.iter().for_each(|id| drop(self.delete(id.as_ref())));
    }

    /// Creates a container, and deletes it.
    #[track_caller]
    pub fn comes_and_goes(&self, id: &str) {
        self.create(id);
        self.delete(id);
    }

    #[track_caller]
    pub fn gc(&self) -> Said {
        said(&mut self.migctl(&["gc"]))
    }

    #[track_caller]
    pub fn repair(&self) -> Said {
        self.ctl(&["gc", "--repair"]).ok()
    }

    /// The poststop hook as the low-level runtime calls it, for the lease of a container.
    pub fn hook(&self, id: &str, lease: &str) -> strace::Call {
        self.hook_with(id, &["--lease", lease], Value::Null)
    }

    /// The createRuntime hook of a container that runs.
    pub fn limit_hook(&self, id: &str, lease: &str) -> strace::Call {
        let pid = self.living_init(id).expect("a container that runs");
        self.hook_with(id, &["--limit", "--lease", lease], pid.into())
    }

    fn hook_with(&self, id: &str, arguments: &[&str], pid: Value) -> strace::Call {
        let state = json!({
            "ociVersion": "1.0.2", "id": id, "status": "stopped", "pid": pid,
            "bundle": self.path("bundles").join(id),
        });
        let file = self.path(&format!("state-of-{id}.json"));
        fs::write(&file, state.to_string()).unwrap();
        let mut command = self.program("runmig-hook");
        command.args(arguments).arg("--config");
        command.arg(self.path("config.toml"));
        strace::Call {
            command,
            stdin: Some(file),
        }
    }

    /// A bundle whose container asks for the smallest slice; left as it is where it is there.
    pub fn bundle(&self, id: &str) -> PathBuf {
        self.bundle_asking(id, self.profile)
    }

    pub fn bundle_asking(&self, id: &str, slice: &str) -> PathBuf {
        self.bundle_saying(id, &[("runmig.dev/slice", slice)])
    }

    /// Makes a bundle of a container whose slice is its pod's.
    pub fn bundle_in_pod(&self, id: &str, slice: &str, pod: &str) -> PathBuf {
        let of_pod = ("io.kubernetes.cri.sandbox-id", pod);
        let asks = [("runmig.dev/slice", slice), ("runmig.dev/scope", "pod")];
        self.bundle_saying(id, &[&asks[..], &[of_pod]].concat())
    }

    /// Makes a bundle of a container of the pod `train` as the CDI files of these claims leave it.
    pub fn bundle_with_claims(&self, id: &str, claims: &[&str]) -> PathBuf {
        let dir = self.bundle_saying(
            id,
            &[
                ("io.kubernetes.cri.sandbox-namespace", "team-a"),
                ("io.kubernetes.cri.sandbox-name", "train"),
                ("io.kubernetes.cri.sandbox-uid", "pod-uid"),
            ],
        );
        let text = fs::read_to_string(dir.join("original")).unwrap();
        let path = self.bin.path().join("runmig-claim");
        let path = path.display();
        let hooks = |verb: &str| {
            let hook = |uid: &&str| {
                format!(
                    r#"{{"path": "{path}", "timeout": 30,
  "args": ["runmig-claim", "{verb}", "--claim", "{uid}", "--device", "device"]}}"#
                )
            };
            claims.iter().map(hook).collect::<Vec<_>>().join(", ")
        };
        let (attach, detach) = (hooks("attach"), hooks("detach"));
        let section = format!(
            "\"hooks\": {{\"createRuntime\": [{attach}], \"poststop\": [{detach}]}},\n  \"linux\": {{"
        );
        let text = text.replace("\"linux\": {", &section).replace(
            "\"PATH=/bin\"",
            "\"PATH=/bin\", \"NVIDIA_VISIBLE_DEVICES=void\", \"RUNMIG_SLICE_SLICE=x\"",
        );
        fs::write(dir.join("config.json"), &text).unwrap();
        fs::write(dir.join("original"), &text).unwrap();
        dir
    }

    pub fn bundle_saying(&self, id: &str, annotations: &[(&str, &str)]) -> PathBuf {
        let dir = self.path("bundles").join(id);
        if !dir.join("config.json").exists() {
            fs::create_dir_all(dir.join("rootfs")).unwrap();
            let config = config(&cgroup_of(self, id), annotations);
            fs::write(dir.join("config.json"), &config).unwrap();
            fs::write(dir.join("original"), config).unwrap();
        }
        dir
    }

    /// Starts a create that waits for room. It stands in the queue when this returns.
    #[track_caller]
    pub fn waits(&self, id: &str, asks: &[(&str, &str)]) -> Going {
        self.bundle_saying(id, &[asks, &[("runmig.dev/wait", "10m")]].concat());
        let create = going(self.create_command(id).stdin(Stdio::null()));
        until("it waits", || {
            self.queue().iter().any(|waiter| waiter == id)
        });
        // And has let go of the plan's lock, so that it can be stopped.
        stands_still(create.pid());
        create
    }

    /// As `waits`, of a container that asks for this slice.
    #[track_caller]
    pub fn waits_asking(&self, id: &str, slice: &str) -> Going {
        self.waits(id, &[("runmig.dev/slice", slice)])
    }

    /// Returns the waiting containers, in order.
    pub fn queue(&self) -> Vec<String> {
        check::tickets(&self.state())
    }

    /// Creates containers with the smallest slices until no room is left.
    pub fn full(&self) -> Vec<String> {
        let ids: Vec<String> = (0..self.slots).map(|n| format!("full{n}")).collect();
        self.create_all(&ids);
        ids
    }

    /// Deletes these containers, which were all that there was.
    #[track_caller]
    pub fn ends<S: AsRef<str>>(&self, ids: &[S]) {
        self.delete_all(ids);
        self.as_if_nothing_had_been().unwrap();
    }

    /// The same with a collection at the end.
    #[track_caller]
    pub fn all_go<S: AsRef<str>>(&self, ids: &[S]) {
        self.delete_all(ids);
        self.gc().ok();
        self.as_if_nothing_had_been().unwrap();
    }

    /// The same, and no slice is kept for later any more.
    #[track_caller]
    pub fn tidy_up(&self, ids: &[&str]) {
        self.delete_all(ids);
        self.configure("");
        self.nobody_is_left();
    }

    /// After a collection the machine is as if nothing had been.
    #[track_caller]
    pub fn nobody_is_left(&self) {
        self.all_go(&[""; 0]);
    }

    #[track_caller]
    pub fn leases(&self) -> Vec<Value> {
        crate::setup::items(&self.ctl(&["list", "-o", "json"]).json())
    }

    /// Returns the states of the leases, in their order.
    #[track_caller]
    pub fn states(&self) -> Vec<String> {
        let leases = self.leases();
        let state = |lease: &Value| lease["state"].as_str().unwrap().to_owned();
        leases.iter().map(state).collect()
    }

    #[track_caller]
    pub fn lease_id(&self, id: &str) -> String {
        self.lease_of(id)["id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn lease_of(&self, id: &str) -> Value {
        let mut leases = self.leases_of(id);
        assert_eq!(leases.len(), 1, "leases of {id}: {leases:?}");
        leases.remove(0)
    }

    /// Returns the leases of a container.
    #[track_caller]
    pub fn leases_of(&self, id: &str) -> Vec<Value> {
        let mut leases = self.leases();
        leases.retain(|l| l["container"] == id);
        leases
    }

    /// The init of a container that the low-level runtime has on record and that lives.
    pub fn living_init(&self, id: &str) -> Option<i32> {
        let text = fs::read(self.root().join(id).join("state.json")).ok()?;
        let state: Value = serde_json::from_slice(&text).ok()?;
        let pid = i32::try_from(state["init_process_pid"].as_i64()?).ok()?;
        let now = runmig_lease::process::of(pid)?;
        (Some(now.start_time) == state["init_process_start"].as_u64()).then_some(pid)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.machine().join("usr").exists() {
            self.end_daemons();
        }
        // Those who wait in vain for a pipe, and the containers.
        for id in names_in(&self.root()) {
            self.living_init(&id).into_iter().for_each(kill);
        }
        for id in names_in(&self.path("bundles")) {
            let cgroup = cgroup_of(self, &id);
            crate::leftovers::remove_cgroup(&cgroup.to_string_lossy());
        }
    }
}

/// Numbers equal values from 1.
pub fn numbered<T: Clone + Eq + Hash>(all: impl IntoIterator<Item = T>) -> Vec<(T, u64)> {
    let mut seen: HashMap<T, u64> = HashMap::new();
    let number = |one: T| {
        let nth = seen.entry(one.clone()).or_default();
        *nth += 1;
        (one, *nth)
    };
    all.into_iter().map(number).collect()
}

/// Returns the driver calls of the process that called first, each with its number among all calls of its name: whoever releases
/// what a create waits for calls the driver too.
pub fn own_calls(calls: Vec<(u32, String)>) -> Vec<(String, u64)> {
    let (pids, names): (Vec<u32>, Vec<String>) = calls.into_iter().unzip();
    let all = pids.iter().zip(numbered(names));
    let own = all.filter(|(pid, _)| **pid == pids[0]);
    own.map(|(_, call)| call).collect()
}

/// Returns the directory of a bundle's cgroup.
pub fn cgroup_of(world: &World, id: &str) -> PathBuf {
    let name = world.dir.path().file_name().unwrap().to_string_lossy();
    Path::new(crate::cgroup2::ROOT).join(format!("{name}-{id}"))
}

/// Spaces, an unknown field and a number that a double cannot hold: what a rewrite would lose. The cgroup is its own, since
/// another container of the machine may have the one that an id stands for.
fn config(cgroup: &Path, annotations: &[(&str, &str)]) -> String {
    let cgroup = cgroup.file_name().unwrap().to_string_lossy();
    let pair = |(key, value): &(&str, &str)| format!("\"{key}\": \"{value}\"");
    let annotations: Vec<String> = annotations.iter().map(pair).collect();
    let annotations = annotations.join(", ");
    format!(
        r#"{{"ociVersion": "1.0.2",  "unknown": 12345678901234567890.5,
  "process": {{"args": ["sh"], "cwd": "/", "env": ["PATH=/bin"]}}, "root": {{"path": "rootfs"}},
  "annotations": {{{annotations}}},
  "mounts": [{{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}}],
  "linux": {{"cgroupsPath": "/{cgroup}", "resources": {{"devices": [{{"allow": false, "access": "rwm"}}]}}}}}}
"#
    )
}

/// In memory, if there is such a place.
fn home() -> PathBuf {
    let memory = Some(PathBuf::from("/dev/shm"));
    let memory = memory.filter(|memory| memory.is_dir());
    memory.unwrap_or_else(std::env::temp_dir)
}

/// Our programs and the stub, once for all worlds there are at a time.
fn bin() -> Arc<TempDir> {
    static BIN: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut known = BIN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bin) = known.upgrade() {
        return bin;
    }
    let dir = crate::temporary("runmig-bin-", &std::env::temp_dir());
    for name in crate::setup::PROGRAMS.iter().chain(&["stub-claims"]) {
        install(name, &dir.path().join(name));
    }
    install("stub-runtime", &dir.path().join("runc"));
    install("stub-runtime", &dir.path().join("crun"));
    let bin = Arc::new(dir);
    *known = Arc::downgrade(&bin);
    bin
}
