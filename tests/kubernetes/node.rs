//! The node that `scripts/kubernetes` makes, in a folder of its own.

use testkit::prelude::*;

/// A kubelet tries again after some ten seconds, then twenty; and 2 cores are not many.
const LIMIT: Duration = Duration::from_secs(240);

pub struct Node {
    /// As `scripts/kubernetes` calls it.
    pub engine: &'static str,
    /// Its folder is the node's.
    pub machine: Machine,
}

impl Node {
    /// With one A100. None where something that it is made of is not there.
    pub fn up(engine: &'static str) -> Option<Node> {
        Node::up_with(engine, &[])
    }

    /// With more arguments for `scripts/kubernetes up`.
    pub fn up_with(engine: &'static str, arguments: &[&str]) -> Option<Node> {
        if !nix::unistd::geteuid().is_root() {
            skip("a node makes containers, as root");
            return None;
        }
        let its = if engine == "cri-o" { "crio" } else { engine };
        let parts = [
            ("kubernetes", "kubelet"),
            ("cri-tools", "crictl"),
            (engine, its),
        ];
        for (part, program) in parts {
            if built(part, program).is_none() {
                skip(&format!("{part} is not built: scripts/engines {part}"));
                return None;
            }
        }
        for program in ["runc", "conmon", "podman", "openssl", "ip"] {
            if on_path(program).is_none() {
                skip(&format!("{program} is not there; run scripts/setup"));
                return None;
            }
        }
        let node = Node {
            engine,
            machine: Machine::to_be(),
        };
        let programs = Path::new(env!("CARGO_BIN_EXE_runmig")).parent().unwrap();
        let programs = programs.to_str().unwrap();
        let common = ["--dra", "--engine", engine, "--from", programs];
        node.script("up", &[&common[..], arguments].concat());
        Some(node)
    }

    /// The engine by the name that its service has, and that migctl knows.
    pub fn runtime(&self) -> &'static str {
        match self.engine {
            "cri-o" => "crio",
            engine => engine,
        }
    }

    /// `scripts/kubernetes VERB ARGUMENTS`, which has to succeed.
    #[track_caller]
    pub fn script(&self, verb: &str, arguments: &[&str]) {
        let output = self.script_command(verb, arguments).output().unwrap();
        let (status, error) = (output.status, String::from_utf8_lossy(&output.stderr));
        let call = format!("scripts/kubernetes {verb} {arguments:?}");
        assert!(status.success(), "{call} ended with {status}\n{error}");
    }

    fn script_command(&self, verb: &str, arguments: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/kubernetes");
        let mut command = Command::new(script);
        command.arg(verb).args(arguments);
        command.arg("--dir").arg(self.dir());
        command
    }

    pub fn dir(&self) -> PathBuf {
        self.machine.dir().parent().unwrap().to_owned()
    }

    /// The pid of the node's first process.
    pub fn init(&self) -> i32 {
        let init = fs::read_to_string(self.dir().join("init")).unwrap();
        init.split(' ').next().unwrap().parse().unwrap()
    }

    /// The node's root folder, as it sees it.
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.init()))
    }

    /// The node's processes of a program, by their pids on the machine.
    pub fn processes(&self, program: &str) -> Vec<i32> {
        let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let node = namespace(self.init());
        let is_here = |pid: &i32| namespace(*pid) == node;
        with_argument(program).into_iter().filter(is_here).collect()
    }

    /// A program in the node.
    #[track_caller]
    pub fn run(&self, program: &str, arguments: &[&str]) -> Said {
        let program = self.dir().join("bin").join(program);
        said(Command::new(program).args(arguments))
    }

    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> Said {
        self.run("kubectl", arguments)
    }

    #[track_caller]
    pub fn apply(&self, manifest: &Value) {
        let file = self.dir().join("manifest.json");
        fs::write(&file, manifest.to_string()).unwrap();
        self.kubectl(&["apply", "--filename", file.to_str().unwrap()])
            .ok();
    }

    #[track_caller]
    pub fn pod_of(&self, name: &str, annotations: Value, spec: Value) {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations}, "spec": spec,
        }));
    }

    /// A pod whose one container, `c`, runs a shell script until it is told to end.
    #[track_caller]
    pub fn pod(&self, name: &str, annotations: Value, script: &str) {
        self.pod_of(name, annotations, pod_spec(&stays(script), "Always"));
    }

    /// A pod that sleeps, with this slice.
    #[track_caller]
    pub fn sleeper(&self, name: &str, slice: &str) {
        self.pod(name, json!({"runmig.dev/slice": slice}), "true");
    }

    #[track_caller]
    pub fn get(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["get", "--output=json"];
        all.extend(arguments);
        self.kubectl(&all).ok().json()
    }

    /// kubectl, for what may take its time.
    #[track_caller]
    pub fn patiently(&self, arguments: &[&str]) {
        let output = Command::new(self.dir().join("bin/kubectl"))
            .args(arguments)
            .arg(format!("--timeout={}s", LIMIT.as_secs()))
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
    }

    /// Until it is so, in the words of `kubectl wait --for`.
    #[track_caller]
    pub fn is(&self, so: &str, what: &str) {
        self.patiently(&["wait", &format!("--for={so}"), what]);
    }

    /// Until its containers run.
    #[track_caller]
    pub fn is_ready(&self, pod: &str) {
        self.is("condition=Ready", &format!("pod/{pod}"));
    }

    #[track_caller]
    pub fn delete(&self, pod: &str) {
        self.patiently(&["delete", "pod", pod, "--ignore-not-found"]);
    }

    #[track_caller]
    pub fn logs(&self, of: &str) -> String {
        self.kubectl(&["logs", of]).ok().stdout
    }

    /// What a JSONPath finds in the ResourceSlices.
    #[track_caller]
    pub fn in_resource_slices(&self, path: &str) -> String {
        let path = format!("--output=jsonpath={path}");
        self.kubectl(&["get", "resourceslices", &path]).ok().stdout
    }

    /// Returns the message that the user reads.
    #[track_caller]
    pub fn describe(&self, pod: &str) -> String {
        self.kubectl(&["describe", "pod", pod]).ok().stdout
    }

    /// How often it found no room, by the pod's events.
    pub fn failures(&self, pod: &str) -> u64 {
        let of = format!("--field-selector=involvedObject.name={pod},reason=Failed");
        let events = self.get(&["events", &of]);
        let found_none = |event: &&Value| {
            let message = event["message"].as_str().unwrap();
            message.contains("cannot allocate")
        };
        let all = events["items"].as_array().unwrap().iter();
        let times = |event: &Value| event["count"].as_u64().unwrap_or(1);
        all.filter(found_none).map(times).sum()
    }

    /// Records passed cases for the table in docs/tested-engines.md.
    pub fn passed(&self, cases: &[&str]) {
        let version = |part: &str| {
            let bin = built(part, "").unwrap().canonicalize().unwrap();
            let version = bin.parent().unwrap().file_name().unwrap();
            version.to_str().unwrap().to_owned()
        };
        let engine = match self.engine {
            "cri-o" => "CRI-O",
            engine => engine,
        };
        let (kubernetes, its) = (version("kubernetes"), version(self.engine));
        let column = format!("Kubernetes {kubernetes}, {engine} {its}");
        for case in cases {
            table::passed(&column, case);
        }
    }

    #[track_caller]
    pub fn leases(&self) -> Vec<Value> {
        self.list("items")
    }

    /// Waits until the leases are so. CRI-O removes a container a while after its end; the timer does not wait for that.
    #[track_caller]
    pub fn has_leases(&self, what: &str, are_so: impl Fn(&[Value]) -> bool) {
        eventually(what, || {
            self.run("migctl", &["gc"]).ok();
            are_so(&self.leases())
        });
    }

    /// The create of a pod's sandbox is over by then.
    #[track_caller]
    pub fn has_a_queue(&self) -> bool {
        !self.list("waiting").is_empty()
    }

    #[track_caller]
    fn list(&self, what: &str) -> Vec<Value> {
        let list = self.run("migctl", &["list", "-o", "json"]).ok().json();
        list[what].as_array().expect(what).clone()
    }

    /// Neither pods nor leases nor instances, and nothing for a collector to do.
    #[track_caller]
    pub fn nothing_is_left(&self) {
        let pods = self.get(&["pods"]);
        assert_eq!(pods["items"], json!([]));
        eventually("nothing is left", || {
            // CRI-O removes containers a while after their pods; the timer does not wait for that.
            if self.engine == "cri-o" {
                self.run("migctl", &["gc"]).ok();
            }
            self.leases().is_empty() && self.machine.instances().is_empty()
        });
        let collected = self.run("migctl", &["gc", "-o", "json"]).ok().json();
        assert_eq!(collected["items"], json!([]));
    }

    /// Whether a `runmig create` is at work in this node.
    pub fn is_creating(&self) -> bool {
        self.processes("/usr/local/bin/runmig").iter().any(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let arguments: Vec<&str> = line.split('\0').collect();
            arguments[0].ends_with("/runmig") && arguments.contains(&"create")
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for command in [
                "get pods -A -o wide",
                "describe pods -A",
                "logs --namespace=runmig daemonset/runmig-dra --tail=30",
            ] {
                let mut kubectl = Command::new(self.dir().join("bin/kubectl"));
                if let Ok(shown) = kubectl.args(command.split(' ')).output() {
                    eprintln!("{}", String::from_utf8_lossy(&shown.stdout));
                }
            }
        }
        let _ = self.script_command("down", &[]).output();
    }
}

/// A shell script, and then a sleep until it is told to end.
pub fn stays(script: &str) -> String {
    format!("trap 'exit 0' TERM; {script}; sleep 10000 & wait")
}

/// As `pod_spec`, without a RuntimeClass.
pub fn plain_spec(script: &str) -> Value {
    let mut spec = pod_spec(&stays(script), "Always");
    spec.as_object_mut().unwrap().remove("runtimeClassName");
    spec
}

/// One container `c`.
pub fn pod_spec(script: &str, restart: &str) -> Value {
    json!({
        "runtimeClassName": "runmig",
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 5,
        "containers": [{
            "name": "c",
            "image": "localhost/busybox:1",
            "command": ["sh", "-c", script],
        }],
    })
}

/// Asks again until it is so.
#[track_caller]
pub fn eventually(what: &str, mut it_is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !it_is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
