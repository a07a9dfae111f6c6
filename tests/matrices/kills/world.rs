//! A simulated machine with a ledger in memory, which is put back before each point.
//!
//! ```text
//! DIR/live/machine/    the simulated driver          DIR/live/root/ID/    what the low-level runtime keeps of a container
//! DIR/live/state/      the ledger                    DIR/live/bundles/ID/
//! DIR/template/        the same, as an operation finds it
//! ```

use crate::simulated::Simulated;
use runmig_lease::config::Config;
use runmig_lease::error::{Error, Result};
use runmig_lease::model::{Cgroup, Process};
use runmig_lease::process;
use runmig_lease::store::{Container, Key};
use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The container that an operation is about.
pub const ID: &str = "victim";
/// Another of its pod, or beside it.
pub const PEER: &str = "peer";
/// One that comes meanwhile.
pub const OTHER: &str = "other";
pub const IDS: [&str; 3] = [ID, PEER, OTHER];

/// An A30: four memory slices and the fewest profiles.
const MODEL: &str = "A30-24GB";
pub const PROFILE: &str = "1g.6gb";
pub const SLOTS: u32 = 4;
/// All of its slices.
pub const WHOLE: &str = "4g.24gb";

/// Files with more bytes never change: the driver's programs, and its table of all minors.
const LARGE: u64 = 1 << 16;
/// The keys of numbers that tell nothing but which is which.
const NUMBERS: [&str; 9] = [
    "pid",
    "Pid",
    "process",
    "process_start",
    "startTime",
    "generation",
    "freed",
    "left",
    "seq",
];

pub struct World {
    dir: TempDir,
    simulated: Simulated,
}

impl Deref for World {
    type Target = Simulated;

    fn deref(&self) -> &Simulated {
        &self.simulated
    }
}

impl World {
    /// Makes a machine with GPUs in MIG mode and GPUs that do not support it.
    pub fn new() -> World {
        let dir = tempfile::Builder::new()
            .prefix("runmig-kills-")
            .tempdir_in("/dev/shm")
            .expect("a folder in /dev/shm");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let simulated = Simulated(dir.path().join("live/machine"));
        let world = World { dir, simulated };
        fs::copy(built("libnvml_sim.so"), world.library()).unwrap();
        world
    }

    /// Empties the world, and makes a machine with one GPU in MIG mode and so many that do not support it.
    pub fn begin(&self, without_mig: u32) {
        for folder in ["live", "template"] {
            let _ = fs::remove_dir_all(self.dir.path().join(folder));
        }
        for folder in ["machine/lib", "root", "bundles"] {
            fs::create_dir_all(self.path(folder)).unwrap();
        }
        let library = self.path("machine/lib/libnvidia-ml.so.1");
        fs::hard_link(self.library(), library).unwrap();
        self.make(MODEL, 1, without_mig);
        self.configure("");
    }

    /// The driver's library, of which each machine has a link.
    pub fn library(&self) -> PathBuf {
        self.dir.path().join("libnvidia-ml.so.1")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("live").join(name)
    }

    /// A file that stays when the world is put back.
    pub fn note(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn configure(&self, more: &str) {
        let machine = self.path("machine");
        let text = format!(
            "state_dir = \"{}\"\ndata_dir = \"{}\"\ndriver_files = \"none\"\nlock_timeout = \"5s\"\n{more}\n\
             [driver]\nlibrary = \"{}\"\nroot = \"{}\"\n",
            self.path("state").display(),
            self.path("data").display(),
            machine.join("lib/libnvidia-ml.so.1").display(),
            machine.display()
        );
        fs::write(self.path("config.toml"), text).unwrap();
    }

    pub fn config(&self) -> Config {
        Config::read(&self.path("config.toml")).expect("a configuration")
    }

    /// Keeps the world as it is for `put_back`.
    pub fn keep(&self) {
        let template = self.dir.path().join("template");
        fs::create_dir_all(&template).unwrap();
        mirror(&self.dir.path().join("live"), &template);
    }

    /// Makes the world again what it was when it was kept.
    pub fn put_back(&self) {
        mirror(
            &self.dir.path().join("template"),
            &self.dir.path().join("live"),
        );
    }

    /// Returns a number that two states share if they differ in ids, times and processes alone.
    pub fn state(&self) -> u64 {
        let (mut hasher, mut names) = (DefaultHasher::new(), HashMap::new());
        IDS.map(|id| self.living_init(id).is_some())
            .hash(&mut hasher);
        let mut folders = vec![self.dir.path().join("live")];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
            let mut entries: Vec<_> = entries.map(|e| (e.path(), e.metadata().unwrap())).collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            for (path, meta) in entries {
                renamed(&path.to_string_lossy(), &mut names).hash(&mut hasher);
                (meta.mode(), meta.rdev()).hash(&mut hasher);
                if meta.is_dir() {
                    folders.push(path);
                } else if meta.is_file() && meta.len() <= LARGE {
                    let bytes = fs::read(path).unwrap_or_default();
                    renamed(&String::from_utf8_lossy(&bytes), &mut names).hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }

    pub fn bundle(&self, id: &str) -> PathBuf {
        self.path("bundles").join(id)
    }

    /// Makes a bundle of a container with these annotations.
    pub fn ask(&self, id: &str, annotations: &[(&str, &str)]) {
        let dir = self.bundle(id);
        fs::create_dir_all(&dir).unwrap();
        let pairs: Vec<String> = { annotations.iter() }
            .map(|(key, value)| format!("\"{key}\": \"{value}\""))
            .collect();
        // Spaces, an unknown field and a number that a double cannot hold: what a rewrite would lose.
        let text = format!(
            "{{\"ociVersion\": \"1.0.2\",  \"unknown\": 12345678901234567890.5,\n  \
             \"process\": {{\"args\": [\"sh\"], \"cwd\": \"/\", \"env\": [\"PATH=/bin\"]}}, \
             \"root\": {{\"path\": \"rootfs\"}},\n  \"annotations\": {{{}}}}}\n",
            pairs.join(", ")
        );
        fs::write(dir.join("config.json"), &text).unwrap();
        fs::write(dir.join("original"), &text).unwrap();
    }

    pub fn annotations(&self, id: &str) -> Vec<(String, String)> {
        let text = fs::read(self.bundle(id).join("original")).expect("an original");
        let config: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let all = config["annotations"].as_object().into_iter().flatten();
        all.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect()
    }

    pub fn key(&self, id: &str) -> Key {
        Key::new(self.path("root"), id.to_owned())
    }

    pub fn container(&self, id: &str) -> Container {
        Container {
            key: self.key(id),
            runtime: "/usr/bin/runc".into(),
            bundle: self.bundle(id),
            ..Container::default()
        }
    }

    /// The cgroup that a container will have, which no process here has.
    pub fn cgroup(&self, id: &str) -> Cgroup {
        let name = self.dir.path().file_name().unwrap().to_string_lossy();
        Cgroup {
            names: vec![format!("{name}-{id}")],
            path: None,
        }
    }

    /// The low-level runtime makes the container: its init is a process that the test started.
    pub fn start_container(&self, id: &str, init: i32) -> Result<()> {
        let process =
            process::of(init).ok_or_else(|| Error::new("the init of the test is gone"))?;
        let dir = self.path("root").join(id);
        fs::create_dir_all(&dir).unwrap();
        let state = serde_json::json!({
            "init_process_pid": process.pid,
            "init_process_start": process.start_time,
        });
        fs::write(dir.join("state.json"), state.to_string()).unwrap();
        Ok(())
    }

    pub fn has_container(&self, id: &str) -> bool {
        self.path("root").join(id).exists()
    }

    pub fn remove_container(&self, id: &str) {
        let _ = fs::remove_dir_all(self.path("root").join(id));
    }

    /// Returns the init of a container that lives.
    pub fn living_init(&self, id: &str) -> Option<i32> {
        let text = fs::read(self.path("root").join(id).join("state.json")).ok()?;
        let state: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let init = Process {
            pid: i32::try_from(state["init_process_pid"].as_i64()?).ok()?,
            start_time: state["init_process_start"].as_u64()?,
        };
        (process::of(init.pid) == Some(init)).then_some(init.pid)
    }

    /// An administrator's slice, which has to stay.
    pub fn admin_leaves(&self, start: u32) {
        self.admin_creates(0, PROFILE, start, true);
        let theirs: Vec<String> = { self.instances().into_iter() }
            .map(|i| i.generation.to_string())
            .collect();
        fs::write(self.path("theirs"), theirs.join("\n")).unwrap();
    }

    pub fn theirs(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.path("theirs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Removes the slices that the administrator left.
    pub fn admin_tidies_up(&self) {
        let theirs = self.theirs();
        let _ = fs::remove_file(self.path("theirs"));
        for i in self.instances() {
            if theirs.contains(&i.generation) {
                self.admin_destroys(i.gpu, i.gi);
            }
        }
    }

    /// Installs NVIDIA's control program, as far as it is simulated.
    pub fn install_mps(&self) {
        let program = self.path("machine/usr/bin/nvidia-cuda-mps-control");
        // A daemon may run it.
        if !program.exists() {
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            fs::copy(built("nvidia-cuda-mps-control"), program).unwrap();
        }
    }
}

/// The newest file of this name that cargo built beside this program.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let places = [deps.join(name), deps.with_file_name(name)];
    let time = |path: &PathBuf| path.metadata().ok()?.modified().ok();
    let found = places
        .into_iter()
        .filter(|p| time(p).is_some())
        .max_by_key(time);
    found.unwrap_or_else(|| panic!("{name} is not built: cargo build --workspace --all-targets"))
}

/// Returns a text in which each id, time and number of a process is the number of its first mention, without counters and
/// durations.
fn renamed(text: &str, names: &mut HashMap<String, usize>) -> String {
    let mut all = String::new();
    for line in text.lines() {
        let told = [",\"counters\":{", ",\"seconds\":{"];
        let end = told.iter().filter_map(|key| line.find(key)).min();
        let line = &line[..end.unwrap_or(line.len())];
        let mut key = "";
        let mut words =
            line.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c));
        while let Some(word) = words.next() {
            let name = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let digits = name.bytes().filter(u8::is_ascii_digit).count();
            let is_time = name.len() == 13 && name.as_bytes()[10] == b'T';
            let is_number =
                digits > 0 && digits == name.len() && NUMBERS.iter().any(|n| key.ends_with(n));
            if is_time {
                words.by_ref().find(|rest| rest.ends_with('"'));
                all.push('t');
            } else if digits > 5 || is_number {
                let next = names.len();
                all.push_str(&names.entry(name.to_owned()).or_insert(next).to_string());
            } else {
                all.push_str(word);
            }
            if !name.is_empty() {
                key = name;
            }
        }
        all.push('\n');
    }
    all
}

/// Makes a folder like another. Files that are the same stay, and large ones always do.
fn mirror(from: &Path, to: &Path) {
    let names = |dir: &Path| -> Vec<_> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .map(|e| (e.file_name(), e.file_type().unwrap()))
            .collect()
    };
    let wanted = names(from);
    for (name, kind) in names(to) {
        if !wanted.contains(&(name.clone(), kind)) {
            let path = to.join(&name);
            match kind.is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
    }
    for (name, kind) in wanted {
        let (source, target) = (from.join(&name), to.join(&name));
        if kind.is_dir() {
            if !target.exists() {
                fs::create_dir(&target).unwrap();
                let mode = source.metadata().unwrap().permissions();
                fs::set_permissions(&target, mode).unwrap();
            }
            mirror(&source, &target);
        } else if kind.is_file() {
            let is_large = source.metadata().unwrap().len() > LARGE;
            let is_same = match is_large {
                true => target.exists(),
                false => fs::read(&target).ok() == fs::read(&source).ok(),
            };
            if !is_same {
                fs::copy(&source, &target).unwrap();
            }
        } else if !target.exists() {
            node_like(&source, &target);
        }
    }
}

/// Makes a device node, of which the simulated driver has some.
fn node_like(source: &Path, target: &Path) {
    use nix::sys::stat::{Mode, SFlag, mknod};
    let meta = source.symlink_metadata().unwrap();
    let mode = Mode::from_bits_truncate(meta.mode());
    mknod(target, SFlag::S_IFCHR, mode, meta.rdev()).unwrap();
    fs::set_permissions(target, meta.permissions()).unwrap();
}
