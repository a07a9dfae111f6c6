//! runmig as it is installed, with a configuration, a state directory and a driver of its own.
//!
//! ```text
//! DIR/bin/            runmig, runmig-slice, runmig-hook, migctl
//! DIR/config.toml
//! DIR/state/          the ledger; made by runmig
//! DIR/roots/NAME/     what is given as --root
//! DIR/bundles/
//! DIR/front/          a script before the low-level runtime, where one is needed
//! ```

use super::runtimes::{configuration, install, replace_in};
use crate::prelude::*;

/// What is installed.
pub const PROGRAMS: [&str; 6] = [
    "runmig",
    "runmig-slice",
    "runmig-hook",
    "runmig-claim",
    crate::REQUEST_HOOK,
    "migctl",
];

pub struct Setup {
    pub low: Low,
    pub machine: Machine,
    /// The low-level runtime of the configuration.
    pub runtime: PathBuf,
    dir: TempDir,
}

impl Setup {
    /// Two A100 with MIG on.
    pub fn of(low: Low) -> Setup {
        Setup::on(low, Machine::new("A100-80GB", 2))
    }

    /// With runc, a machine as `nvml-sim new` makes it, and more keys of the configuration.
    pub fn with(machine: &str, config: &str) -> Setup {
        let setup = Setup::on(Low::Runc, Machine::of(machine));
        setup.configure(config);
        setup
    }

    /// With a low-level runtime that every machine for tests has.
    pub fn on(low: Low, machine: Machine) -> Setup {
        Setup::try_on(low, machine).expect("containers; hint: run scripts/setup quick, and be root")
    }

    pub fn try_of(low: Low) -> Option<Setup> {
        Setup::try_on(low, Machine::new("A100-80GB", 2))
    }

    /// None where the low-level runtime is not there, as one that `scripts/engines` builds may not be.
    pub fn try_on(low: Low, machine: Machine) -> Option<Setup> {
        let found = low.find()?;
        if !nix::unistd::geteuid().is_root() {
            super::skip("containers are made by root");
            return None;
        }
        let dir = crate::temporary("runmig-e2e-", &std::env::temp_dir());
        let runtime = low.configure(&found, &dir.path().join("front"));
        let setup = Setup {
            low,
            machine,
            runtime,
            dir,
        };
        for name in ["bin", "roots", "bundles"] {
            fs::create_dir(setup.path(name)).unwrap();
        }
        for name in PROGRAMS {
            install(name, &setup.program(name));
        }
        setup.configure("");
        Some(setup)
    }

    /// Writes the configuration anew, with more keys before its tables.
    pub fn configure(&self, more: &str) {
        self.configure_files("none", more);
    }

    /// The same with another source of the driver's files.
    pub fn configure_files(&self, source: &str, more: &str) {
        let (runtime, dir) = (&self.runtime, self.dir.path());
        let text = configuration(runtime, dir, &self.machine.dir(), source, more);
        fs::write(self.config(), text).unwrap();
    }

    /// runmig calls a program in the low-level runtime's place, which changes each config.json by this command of sed.
    pub fn edit_bundles(&self, sed: &str) {
        let low = self.runtime.display();
        let front = self.path("cri").join(self.low.name());
        let body = format!(
            "for word; do\n\
             [ \"$last\" != --bundle ] || sed -i '{sed}' \"$word/config.json\"\n\
             last=$word\n\
             done\n\
             exec {low} \"$@\""
        );
        script(&front, &body);
        self.put_before(&front);
    }

    /// Has a program called in the low-level runtime's place, which it is to call in turn.
    pub fn put_before(&self, front: &Path) {
        let (before, now) = (format!("{:?}", self.runtime), format!("{front:?}"));
        replace_in(&self.config(), &before, &now);
    }

    /// Something in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn config(&self) -> PathBuf {
        self.path("config.toml")
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.path("bin").join(name)
    }

    pub fn root(&self, name: &str) -> PathBuf {
        self.path("roots").join(name)
    }

    /// `runmig --root ROOT ARGUMENTS`
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.under("a", arguments)
    }

    /// The same under another root.
    pub fn under(&self, root: &str, arguments: &[&str]) -> Command {
        let mut command = self.plain(&self.program("runmig"));
        command.arg("--root").arg(self.root(root)).args(arguments);
        command
    }

    /// The low-level runtime itself, called the same.
    pub fn bare(&self, arguments: &[&str]) -> Command {
        let mut command = self.plain(&self.runtime);
        command.arg("--root").arg(self.root("a")).args(arguments);
        command
    }

    pub fn plain(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("RUNMIG_CONFIG", self.config())
            .env_remove("RUST_BACKTRACE")
            .current_dir(self.dir.path());
        command
    }

    #[track_caller]
    pub fn runmig(&self, arguments: &[&str]) -> Said {
        said(&mut self.command(arguments))
    }

    #[track_caller]
    pub fn migctl(&self, arguments: &[&str]) -> Said {
        said(self.plain(&self.program("migctl")).args(arguments))
    }

    /// Returns the standard output of a migctl that succeeds.
    #[track_caller]
    pub fn tells(&self, arguments: &[&str]) -> String {
        self.migctl(arguments).ok().stdout
    }

    /// The same as JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.migctl(arguments).ok().json()
    }

    /// The items of a list as JSON.
    #[track_caller]
    pub fn items(&self, arguments: &[&str]) -> Vec<Value> {
        items(&self.json(&[arguments, &["-o", "json"]].concat()))
    }

    /// `nvml-sim VERB` on its machine.
    pub fn sim(&self, verb: &str, arguments: &[&str]) -> String {
        self.machine.sim(verb, arguments)
    }

    /// A bundle whose container runs a shell script.
    pub fn bundle(&self, script: &str) -> Bundle {
        let path = self.path("bundles").join(super::unique());
        Bundle::new(&path, script)
    }

    /// The same, asking for a slice.
    pub fn asking(&self, slice: &str, script: &str) -> Bundle {
        let bundle = self.bundle(script);
        bundle.annotate("runmig.dev/slice", slice);
        bundle
    }

    /// One with these annotations whose container stays.
    pub fn bundle_with(&self, annotations: &[(&str, &str)]) -> Bundle {
        let bundle = self.bundle("exec sleep 1000");
        for (key, value) in annotations {
            bundle.annotate(key, value);
        }
        bundle
    }

    /// A command of the runtime where the nodes of the simulated machine are the host's. A low-level runtime binds
    /// those into a user namespace.
    pub fn on_its_dev(&self, arguments: &[&str]) -> Command {
        let dev = self.machine.dir().join("dev");
        for node in ["null", "zero", "full", "random", "urandom", "tty"] {
            let mut copy = Command::new("cp");
            said(copy.arg("-a").arg(format!("/dev/{node}")).arg(&dev)).ok();
        }
        crate::mounted::with_folder(&dev, "/dev", &self.command(arguments))
    }

    #[track_caller]
    pub fn create(&self, bundle: &Bundle, id: &str) -> Said {
        self.try_create(bundle, id).ok()
    }

    /// The same under an id of its own.
    #[track_caller]
    pub fn create_new(&self, bundle: &Bundle) -> String {
        let id = unique();
        self.create(bundle, &id);
        id
    }

    /// Creates a container of this id with a slice.
    #[track_caller]
    pub fn make(&self, id: &str, slice: &str) {
        self.create(&self.asking(slice, "true"), id);
    }

    /// Starts a container, and waits for its end.
    #[track_caller]
    pub fn finishes(&self, id: &str) {
        self.runmig(&["start", id]).ok();
        until("it has ended", || {
            self.runmig(&["state", id]).ok().json()["status"] == "stopped"
        });
    }

    /// Creates a container with a slice.
    #[track_caller]
    pub fn made(&self, slice: &str, script: &str) -> (Bundle, String) {
        let bundle = self.asking(slice, script);
        let id = self.create_new(&bundle);
        (bundle, id)
    }

    /// The same, which may fail.
    #[track_caller]
    pub fn try_create(&self, bundle: &Bundle, id: &str) -> Said {
        self.runmig(&["create", "-b", bundle.as_str(), id])
    }

    /// Runs a container to its end.
    #[track_caller]
    pub fn run(&self, bundle: &Bundle) -> Said {
        self.try_run(bundle).ok()
    }

    /// The same, which may fail.
    #[track_caller]
    pub fn try_run(&self, bundle: &Bundle) -> Said {
        self.runmig(&["run", "-b", bundle.as_str(), &super::unique()])
    }

    /// Creates a container that stays, and returns its id.
    #[track_caller]
    pub fn gives(&self, annotations: &[(&str, &str)]) -> String {
        self.create_new(&self.bundle_with(annotations))
    }

    /// Creates a container of a pod that stays, as containerd marks it, and returns its id.
    #[track_caller]
    pub fn in_pod(
        &self,
        namespace: &str,
        pod: &str,
        name: &str,
        annotations: &[(&str, &str)],
    ) -> String {
        let bundle = self.bundle_with(annotations);
        for (key, value) in [
            ("container-type", "container"),
            ("container-name", name),
            ("sandbox-name", pod),
            ("sandbox-namespace", namespace),
            ("sandbox-uid", pod),
            ("sandbox-id", pod),
        ] {
            bundle.annotate(&format!("io.kubernetes.cri.{key}"), value);
        }
        self.create_new(&bundle)
    }

    #[track_caller]
    pub fn delete(&self, id: &str) {
        self.runmig(&["delete", "--force", id]).ok();
    }

    /// Deletes these containers, which were all that there was.
    #[track_caller]
    pub fn ends<S: AsRef<str>>(&self, ids: &[S]) {
        ids.iter().for_each(|id| self.delete(id.as_ref()));
        self.nothing_is_left();
    }

    /// Returns the line of a create that is refused and leaves its bundle as it was.
    #[track_caller]
    pub fn refused(&self, bundle: &Bundle) -> String {
        // Some tests put something else there, or a file of a tebibyte.
        let is_usual = |m: std::fs::Metadata| m.is_file() && m.len() < 1 << 24;
        let has_bytes = || bundle.file().metadata().is_ok_and(is_usual);
        let bytes = || has_bytes().then(|| bundle.bytes());
        let before = bytes();
        let line = self.try_create(bundle, &unique()).refused();
        assert_eq!(bytes(), before);
        line
    }

    /// The same for a bundle with these annotations, which need words in the line.
    #[track_caller]
    pub fn refuses(&self, annotations: &[(&str, &str)], words: &str) -> String {
        let line = self.refused(&self.bundle_with(annotations));
        super::has(&line, words);
        line
    }

    /// Starts a create that waits for room.
    pub fn waits(&self, annotations: &[(&str, &str)]) -> (String, Going) {
        let (id, bundle) = (super::unique(), self.bundle_with(annotations));
        bundle.annotate("runmig.dev/wait", "10m");
        let mut create = self.command(&["create", "-b", bundle.as_str(), &id]);
        let create = going(create.stdin(Stdio::null()));
        until("it waits", || {
            let list = self.json(&["list", "-o", "json"]);
            let all = list["waiting"].as_array().into_iter().flatten();
            { all }.any(|waiter| waiter["container"] == id.as_str())
        });
        (id, create)
    }

    /// Has a call of the driver fail with a code of NVML's.
    pub fn fault(&self, call: &str, returns: &str) {
        self.sim("fault", &["--call", call, "--returns", returns]);
    }

    pub fn no_faults(&self) {
        self.machine.sim("fault", &["--clear"]);
    }

    /// Has a call of the driver take this time.
    pub fn slow(&self, call: &str, takes: &str) {
        self.sim("fault", &["--call", call, "--takes", takes]);
    }

    /// Returns the lease of a container.
    #[track_caller]
    pub fn lease(&self, id: &str) -> Value {
        let leases = self.leases();
        let found = leases.iter().find(|lease| lease["container"] == id);
        let found = found.unwrap_or_else(|| panic!("no lease of {id}: {leases:?}"));
        found.clone()
    }

    /// Returns the process of the MPS daemon of a container.
    #[track_caller]
    pub fn daemon(&self, id: &str) -> i32 {
        crate::sharing::daemon(&self.lease(id)).expect("a daemon")
    }

    /// Returns the output of `migctl list -o json`.
    #[track_caller]
    pub fn leases(&self) -> Vec<Value> {
        let list = self.json(&["list", "-o", "json"]);
        assert_eq!(list["apiVersion"], "runmig.dev/v1");
        assert_eq!(list["kind"], "LeaseList");
        items(&list)
    }

    #[track_caller]
    pub fn the_lease(&self) -> Value {
        let leases = self.leases();
        assert_eq!(leases.len(), 1, "{leases:?}");
        leases[0].clone()
    }

    /// Returns the cgroups of the MPS daemons that have a directory or a process.
    pub fn daemons(&self) -> Vec<String> {
        let folders = entries(&self.state().join("mps"));
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        // A daemon whose directories are gone shows by its program.
        let program = self.machine.dir().join("usr/bin/nvidia-cuda-mps-control");
        let lost = process::executing(&program).into_iter();
        { folders.iter() }
            .map(|folder| format!("runmig-mps-{}", name(folder)))
            .chain(lost.map(|pid| format!("process {pid}")))
            .collect()
    }

    /// Ends the daemons of a test that has failed.
    fn end_daemons(&self) {
        for cgroup in self.daemons() {
            in_cgroup(&cgroup).into_iter().for_each(kill);
            super::leftovers::remove_cgroup(&cgroup);
        }
    }

    /// Neither the driver nor the ledger has anything.
    #[track_caller]
    pub fn nothing_is_left(&self) {
        self.machine.is_empty();
        assert_eq!(self.leases(), Vec::<Value>::new());
        assert_eq!(self.daemons(), Vec::<String>::new());
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.end_daemons();
        for root in entries(&self.path("roots")) {
            for container in entries(&root) {
                let mut delete = Command::new(&self.runtime);
                delete.arg("--root").arg(&root).args(["delete", "--force"]);
                delete.arg(container.file_name().unwrap());
                let _ = delete.output();
            }
        }
        // A low-level runtime that was killed leaves them.
        for bundle in entries(&self.path("bundles")) {
            let config = fs::read(bundle.join("config.json")).unwrap_or_default();
            let config: Value = serde_json::from_slice(&config).unwrap_or_default();
            let path = config["linux"]["cgroupsPath"].as_str();
            if let Some(name) = path.filter(|path| path.starts_with("/runmig-e2e-")) {
                super::leftovers::remove_cgroup(&name[1..]);
            }
        }
    }
}

/// The items of a list as JSON.
#[track_caller]
pub fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().expect("items").clone()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
