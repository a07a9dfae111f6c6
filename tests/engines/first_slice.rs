//! From nothing to a slice, as a new user goes: the commands of docs/engines.md, as they stand there,
//! by the real engines with their real paths. /etc, /usr/local, /run and /var/lib are layers over the
//! machine's, and with the namespaces that they are in all that was started ends.

use testkit::bundle::rootfs;
use testkit::images::{self, IMAGE};
use testkit::prelude::*;

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// A block of commands in the document.
struct Block {
    /// `run by: FILE WORD` or `not run: WHY`
    mark: String,
    commands: Vec<String>,
}

fn document() -> Vec<Block> {
    let text = fs::read_to_string(Path::new(REPOSITORY).join("docs/engines.md")).unwrap();
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    let mut last = "";
    while let Some(line) = lines.next() {
        if line == "```console" {
            let mark = last
                .strip_prefix("<!-- ")
                .and_then(|l| l.strip_suffix(" -->"));
            let mark =
                mark.unwrap_or_else(|| panic!("a block below {last:?} says not who runs it"));
            let mark = mark.to_owned();
            let shown = lines.by_ref().take_while(|line| *line != "```");
            let commands = shown.filter_map(|line| line.strip_prefix("$ "));
            let commands = commands.map(str::to_owned).collect();
            blocks.push(Block { mark, commands });
        }
        last = line;
    }
    assert!(blocks.len() > 5);
    blocks
}

#[test]
fn runs_or_marks_every_command() {
    for block in document() {
        let mut words = block.mark.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("run"), Some("by:"), Some("tests/engines/first_slice.rs")) => {}
            (Some("run"), Some("by:"), Some(file)) => {
                let text = fs::read_to_string(Path::new(REPOSITORY).join(file)).unwrap();
                for command in block.commands {
                    let mark = format!("// docs/engines.md: {command}\n");
                    has(&text, &mark);
                }
            }
            (Some("not"), Some("run:"), Some(_)) => {}
            _ => panic!("{} says not who runs it", block.mark),
        }
    }
}

/// The commands that this file runs for an engine.
fn commands(engine: &str) -> Vec<String> {
    let mark = format!("run by: tests/engines/first_slice.rs {engine}");
    let blocks = document().into_iter().filter(|block| block.mark == mark);
    blocks.flat_map(|block| block.commands).collect()
}

/// A machine with a GPU and without runmig.
struct World {
    machine: Machine,
    dir: TempDir,
}

impl World {
    fn new() -> Option<World> {
        if !nix::unistd::geteuid().is_root() || on_path("runc").is_none() {
            skip("containers are made by root, with runc");
            return None;
        }
        let dir = tempfile::Builder::new()
            .prefix("runmig-first-")
            .tempdir()
            .unwrap();
        chmod(dir.path(), 0o755);
        let machine = Machine::new("A100-80GB", 1);
        let world = World { machine, dir };
        let (library, root) = (world.machine.library(), world.machine.dir());
        let config = format!("[driver]\nlibrary = {library:?}\nroot = {root:?}\n");
        world.write("config.toml", &config);
        world.write("libcuda.so.570", "the driver's\n");
        let cdi = testkit::cdi::with_library(&world.path("libcuda.so.570"));
        world.write("nvidia.json", &cdi.to_string());
        Some(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs the document's commands for an engine, after `before`, each followed by `after`. For
    /// `scripts/install` it installs the programs that are built already.
    fn go(&self, engine: &str, before: &str, after: &str) -> Said {
        let built = Path::new(env!("CARGO_BIN_EXE_runmig")).parent().unwrap();
        let mut script = format!(
            "set -eu
            export PATH={path} HOME=/root
            unset RUNMIG_CONFIG RUNMIG_CACHE
            w={w}
            for dir in etc usr/local run var/lib; do
                mkdir -p $w/upper/$dir $w/work/$dir
                mount -t overlay -o lowerdir=/$dir,upperdir=$w/upper/$dir,workdir=$w/work/$dir overlay /$dir
            done
            # Not upon a layer, for those who make layers.
            for dir in /var/lib/containers /var/lib/containerd /run/containerd /run/containers; do
                mkdir -p $dir $w/plain$dir
                mount --bind $w/plain$dir $dir
            done
            mkdir -p /etc/runmig
            rm -f /usr/local/bin/runmig*
            cp $w/config.toml /etc/runmig/config.toml
            mkdir -p /etc/cdi
            cp $w/nvidia.json /etc/cdi/
            cd $w
            {before}\n",
            path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            w = self.dir.path().display(),
        );
        let wanted = commands(engine);
        assert!(!wanted.is_empty());
        for command in wanted {
            let (from, here) = (built.display(), self.dir.path().display());
            let install = format!("{REPOSITORY}/scripts/install --from {from} 2>&1");
            let shows = format!("{IMAGE} /bin/sh -c '{}'", SHOW.replace('\'', "'\\''"));
            let runs = command
                .replace("scripts/install", &install)
                // No registry has the image.
                .replace("crictl run ", "crictl run --no-pull ")
                .replace("kubernetes/", &format!("{here}/"))
                .replace("IMAGE nvidia-smi -L", &shows);
            script.push_str(&format!("echo '$ {command}'\n{runs}\n{after}\n"));
        }
        self.write("script", &script);
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        unshare.args(["bash"]).arg(self.path("script"));
        said(&mut unshare).ok()
    }
}

/// These programs, whatever others the machine has.
fn first_on_path(programs: &[PathBuf]) -> String {
    let link = |p: &PathBuf| format!("ln -sf {} /usr/local/sbin/\n", p.display());
    programs.iter().map(link).collect()
}

/// Returns the output of a command of the document.
#[track_caller]
fn printed<'a>(said: &'a Said, command: &str) -> &'a str {
    let all = said.stdout.split("\n$ ");
    let mut all = all.filter_map(|part| part.split_once('\n'));
    let found = all.find(|(c, _)| c.contains(command));
    found.unwrap_or_else(|| panic!("no {command}: {said:?}")).1
}

/// One slice, with its two capabilities.
#[track_caller]
fn is_a_slice(saw: &str) {
    has(saw, "VISIBLE=MIG-");
    let seen = nodes(saw);
    let caps = seen.keys().filter(|n| n.starts_with("nvidia-caps/"));
    assert_eq!(caps.count(), 2, "{saw}");
}

testkit::tests! {
    podman: podman_is(on_path("podman"));
    podman_as_it_is_now: podman_is(built("podman", "podman"));
}

fn podman_is(program: Option<PathBuf>) {
    let Some(world) = World::new() else { return };
    let Some(program) = program else {
        return skip_until_full(
            "podman is not there; run scripts/setup and scripts/engines podman",
        );
    };
    rootfs(&world.path("rootfs"));
    // No systemd, no network, no rights to raise limits.
    world.write(
        "containers.conf",
        "[containers]\nnetns = \"none\"\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
         [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
    );
    let before = format!(
        "cp containers.conf /etc/containers/containers.conf
         export PODMAN_IGNORE_CGROUPSV1_WARNING=1
         # podman 5 looks for it, and has no network to make.
         mkdir -p /usr/local/libexec/podman
         ln -sf /bin/true /usr/local/libexec/podman/netavark
         {}
         tar -C rootfs -cf image.tar . && podman import --quiet image.tar {IMAGE}",
        first_on_path(&[program])
    );
    let said = world.go("podman", &before, "");
    is_a_slice(printed(&said, "podman --runtime runmig run"));
    let list = printed(&said, "migctl list");
    assert_eq!(list.lines().count(), 1, "the slice is back: {list}");
    let removed = "removed /etc/containers/containers.conf.d/50-runmig.conf";
    has(printed(&said, "--remove"), removed);
    world.machine.is_empty();
}

testkit::tests! {
    containerd: containerd_is(on_path("containerd"));
    containerd_as_it_is_now: containerd_is(built("containerd", "containerd"));
}

fn containerd_is(program: Option<PathBuf>) {
    let Some(world) = World::new() else { return };
    let (Some(program), Some(crictl)) = (program, built("cri-tools", "crictl")) else {
        let why = "containerd or crictl is not there; run scripts/setup and scripts/engines";
        return skip_until_full(why);
    };
    let beside = ["containerd-shim-runc-v2", "ctr"].map(|name| program.with_file_name(name));
    let programs = [&beside[..], &[program, crictl]].concat();
    let image = images::archive(&world.path("image"));
    for name in ["crictl-pod.json", "crictl-container.json"] {
        let text = fs::read_to_string(Path::new(REPOSITORY).join("kubernetes").join(name)).unwrap();
        let command = serde_json::Value::from(format!("{SHOW}; exec sleep 1000"));
        let text = text
            .replace("docker.io/library/ubuntu:24.04", IMAGE)
            .replace("\"nvidia-smi -L; exec sleep 1000\"", &command.to_string())
            .replace("\"/tmp\"", &format!("{:?}", world.path("logs")));
        world.write(name, &text);
    }
    // As Debian has it, and what this machine is without.
    world.write(
        "containerd.toml",
        &format!(
            "version = 2\noom_score = 0\ndisabled_plugins = [\"io.containerd.internal.v1.opt\"]\n\
             [plugins]\n  [plugins.\"io.containerd.grpc.v1.cri\"]\n    sandbox_image = \"{IMAGE}\"\n    \
             disable_apparmor = true\n    restrict_oom_score_adj = true\n    \
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n      bin_dir = \"/usr/lib/cni\"\n"
        ),
    );
    let before = format!(
        "mkdir -p /etc/containerd
         cp containerd.toml /etc/containerd/config.toml
         echo 'runtime-endpoint: unix:///run/containerd/containerd.sock' >/etc/crictl.yaml
         echo 'image-endpoint: unix:///run/containerd/containerd.sock' >>/etc/crictl.yaml
         {}
         # In the service manager's place.
         systemctl() {{
             [ \"$*\" = 'restart containerd' ]
             containerd >>containerd.log 2>&1 &
             for _ in $(seq 600); do ! crictl version >/dev/null 2>&1 || break; sleep 0.1; done
             ctr --namespace k8s.io images import {} >/dev/null
         }}",
        first_on_path(&programs),
        image.display()
    );
    // crictl run does not wait for what the container prints.
    let after = "case $(ls logs 2>/dev/null) in ?*)
                     for _ in $(seq 600); do ! grep -q VISIBLE logs/* || break; sleep 0.1; done ;;
                 esac";
    let said = world.go("containerd", &before, after);
    let list = printed(&said, "migctl list");
    has(list, " default/first/slice ");
    has(list, " ready ");
    is_a_slice(printed(&said, "crictl logs"));
    assert!(printed(&said, "--remove").contains("changed /etc/containerd/config.toml"));
    world.machine.is_empty();
}

/// Hands each container to the runtime as a CRI engine would.
#[test]
fn documented_pod_gets_its_slice() {
    let setup = Setup::of(testkit::Low::Runc);
    let read = |name: &str| -> serde_json::Value {
        let file = Path::new(REPOSITORY).join("kubernetes").join(name);
        serde_yaml_ng::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    };
    let (class, pod) = (read("runtimeclass.yaml"), read("pod.yaml"));
    assert_eq!(class["handler"], "runmig");
    assert_eq!(pod["spec"]["runtimeClassName"], class["metadata"]["name"]);
    let mut got = Vec::new();
    for container in pod["spec"]["containers"].as_array().unwrap() {
        let bundle = setup.bundle("true");
        for (key, value) in pod["metadata"]["annotations"].as_object().unwrap() {
            bundle.annotate(key, value.as_str().unwrap());
        }
        let name = container["name"].as_str().unwrap();
        bundle.annotate("io.kubernetes.cri.container-type", "container");
        bundle.annotate("io.kubernetes.cri.container-name", name);
        setup.create(&bundle, name);
        let leases = setup.leases();
        let its = leases.iter().find(|l| l["container"] == name);
        got.push(json!([name, its.map(|lease| &lease["profile"])]));
        setup.delete(name);
    }
    let expected = [
        ("infer", Some("1g.10gb")),
        ("train", Some("3g.40gb")),
        ("log", None),
    ];
    assert_eq!(json!(got), json!(expected));
    setup.nothing_is_left();
}
