//! Bundles: a root filesystem of busybox, and config.json as `runc spec` writes it.

use super::process::copy_program;
use crate::prelude::*;

pub struct Bundle {
    pub path: PathBuf,
}

impl Bundle {
    /// Its container runs the script and has a cgroup of its own name.
    pub fn new(path: &Path, script: &str) -> Bundle {
        rootfs(&path.join("rootfs"));
        said(Command::new("runc").args(["spec", "-b"]).arg(path)).ok();
        let path = path.to_owned();
        let bundle = Bundle { path };
        bundle.edit(|config| {
            config["process"]["terminal"] = json!(false);
            config["process"]["args"] = json!(["/bin/sh", "-c", script]);
            config["linux"]["cgroupsPath"] = json!(format!("/runmig-e2e-{}", super::unique()));
        });
        bundle
    }

    pub fn file(&self) -> PathBuf {
        self.path.join("config.json")
    }

    pub fn bytes(&self) -> Vec<u8> {
        fs::read(self.file()).expect("config.json")
    }

    pub fn config(&self) -> Value {
        serde_json::from_slice(&self.bytes()).expect("JSON")
    }

    pub fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut config = self.config();
        change(&mut config);
        fs::write(self.file(), serde_json::to_vec(&config).unwrap()).unwrap();
    }

    pub fn annotate(&self, key: &str, value: &str) {
        self.edit(|config| config["annotations"][key] = json!(value));
    }

    /// Its container is in a user namespace with shifted ids.
    pub fn shift_ids(&self) {
        self.edit(|config| {
            let mapping = json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
            config["linux"]["uidMappings"] = mapping.clone();
            config["linux"]["gidMappings"] = mapping;
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.push(json!({"type": "user"}));
        });
    }

    pub fn set_env(&self, variables: &[&str]) {
        self.edit(|config| set_env(config, variables));
    }

    pub fn mount(&self, mounts: impl IntoIterator<Item = Value>) {
        self.edit(|config| config["mounts"].as_array_mut().unwrap().extend(mounts));
    }

    /// The name of its cgroup, which no other has.
    pub fn cgroup(&self) -> String {
        let config = self.config();
        let path = config["linux"]["cgroupsPath"].as_str().unwrap();
        path.trim_start_matches('/').to_owned()
    }

    pub fn as_str(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// The names in it: nothing of ours stays behind.
    pub fn names(&self) -> Vec<String> {
        names_in(&self.path)
    }
}

/// Adds variables to the environment of a config.json.
pub fn set_env(config: &mut Value, variables: &[&str]) {
    let env = config["process"]["env"].as_array_mut().unwrap();
    env.extend(variables.iter().map(|variable| json!(variable)));
}

/// A bind mount, as an engine writes it.
pub fn bind(source: impl AsRef<Path>, to: &str, options: &[&str]) -> Value {
    json!({"destination": to, "type": "bind", "source": source.as_ref(), "options": options})
}

/// A root filesystem that has a shell.
pub fn rootfs(path: &Path) {
    const APPLETS: [&str; 16] = [
        "cat", "echo", "env", "false", "find", "id", "kill", "ls", "mkdir", "readlink", "sh",
        "sleep", "sort", "test", "true", "tty",
    ];
    for dir in ["bin", "dev", "proc", "sys", "tmp", "etc"] {
        fs::create_dir_all(path.join(dir)).unwrap();
    }
    let mut places = ["/bin/busybox", "/usr/bin/busybox"].iter().map(Path::new);
    let busybox = places.find(|path| path.exists());
    let busybox = busybox.expect("busybox is not there: apt-get install busybox-static");
    copy_program(busybox, &path.join("bin/busybox"));
    for applet in APPLETS {
        symlink("busybox", path.join("bin").join(applet)).unwrap();
    }
}

/// How many NVIDIA nodes a container with one slice has on a headless machine.
pub const NODES: usize = 6;

/// A script that prints what `nodes` and `visible` read.
pub const SHOW: &str =
    "find /dev -name 'nvidia*' -type c -exec ls -l '{}' ';'; echo VISIBLE=$NVIDIA_VISIBLE_DEVICES";

/// A script that says for each NVIDIA node why it could not be opened. There is no driver behind
/// them, so that is "No such device" where the cgroup lets it pass.
pub const OPEN: &str =
    "find /dev -name 'nvidia*' -type c | while read node; do (: <$node) 2>&1; done; true";

/// Whether a cgroup let all of the slice's nodes pass.
#[track_caller]
pub fn all_open(stdout: &str) {
    let said = stdout.to_lowercase();
    assert_eq!(said.matches("no such device").count(), NODES, "{stdout}");
    assert!(!said.contains("not permitted"), "{stdout}");
}

/// The NVIDIA nodes that a container saw, by path below `/dev`.
pub fn nodes(stdout: &str) -> BTreeMap<String, (u32, u32)> {
    let mut nodes = BTreeMap::new();
    for line in stdout.lines().filter(|line| line.starts_with('c')) {
        let words: Vec<&str> = line.split([' ', ',']).filter(|w| !w.is_empty()).collect();
        let number = |at: usize| words[at].parse::<u32>().expect(line);
        let path = words.last().unwrap().strip_prefix("/dev/").unwrap();
        nodes.insert(path.to_owned(), (number(4), number(5)));
    }
    nodes
}

/// NVIDIA_VISIBLE_DEVICES as a container saw it.
pub fn visible(stdout: &str) -> Option<&str> {
    let mut lines = stdout.lines();
    lines.find_map(|line| line.strip_prefix("VISIBLE="))
}
