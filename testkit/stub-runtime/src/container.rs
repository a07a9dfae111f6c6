//! One container: `<root>/<id>/state.json` and the process that it names.

use crate::{Failure, cgroup, hooks, init};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

pub struct Container {
    root: PathBuf,
    id: String,
}

impl Container {
    pub fn new(root: &Path, id: &str) -> Container {
        let (root, id) = (root.to_owned(), id.to_owned());
        Container { root, id }
    }

    fn dir(&self) -> PathBuf {
        self.root.join(&self.id)
    }

    /// Whether it is to misbehave so, and with what.
    fn told(&self, word: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join("behaviour")).unwrap_or_default();
        text.lines().find_map(|line| {
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            (first == word).then(|| rest.to_owned())
        })
    }

    /// Waits for a write into a pipe.
    fn wait_if_told(&self, word: &str) -> Result<(), Failure> {
        if let Some(fifo) = self.told(word) {
            let mut byte = [0u8];
            fs::File::open(fifo)?.read_exact(&mut byte)?;
        }
        Ok(())
    }

    pub fn create(&self, bundle: &Path, pid_file: Option<&Path>) -> Result<(), Failure> {
        let bundle = fs::canonicalize(bundle)?;
        let config: Value = serde_json::from_slice(&fs::read(bundle.join("config.json"))?)?;
        if self.told("rewrites-config").is_some() {
            let mut config = config.clone();
            config["process"]["env"] = json!(["NVIDIA_VISIBLE_DEVICES=void"]);
            fs::write(bundle.join("config.json"), serde_json::to_vec(&config)?)?;
        }
        if self.told("create-crashes").is_some() {
            std::process::abort();
        }
        if self.told("create-fails-early").is_some() {
            return Err("told to fail early".into());
        }
        self.wait_if_told("create-waits")?;
        fs::create_dir_all(&self.root)?;
        fs::create_dir(self.dir()).map_err(|e| format!("container {}: {e}", self.id))?;
        let test = fs::read_to_string(self.root.join("test")).ok();
        let init = init::start(test)?;
        let cgroup = config["linux"]["cgroupsPath"].as_str();
        let cgroup = cgroup.and_then(cgroup::dir);
        if let Some(cgroup) = &cgroup {
            cgroup::enter(cgroup, init.pid).inspect_err(|_| init::kill(init))?;
        }
        let state = json!({
            "id": self.id,
            "bundle": bundle,
            "init_process_pid": init.pid,
            "init_process_start": init.start_time,
            "cgroup": cgroup,
            // As runc does: a delete runs the hooks that the create read.
            "hooks": config["hooks"],
        });
        fs::write(self.dir().join("state.json"), serde_json::to_vec(&state)?)?;
        if let Err(e) = hooks::create_runtime(&self.id, &state) {
            init::kill(init);
            self.remove(&state)?;
            return Err(e);
        }
        if let Some(file) = pid_file {
            fs::write(file, init.pid.to_string())?;
        }
        self.wait_if_told("create-waits-late")?;
        if self.told("create-fails-late").is_some() {
            init::kill(init);
            self.remove(&state)?;
            return Err("told to fail late".into());
        }
        Ok(())
    }

    pub fn run(&self, bundle: &Path, pid_file: Option<&Path>) -> Result<(), Failure> {
        self.create(bundle, pid_file)?;
        let init = self.init()?;
        if self.told("run-ends").is_some() {
            // Not before another process could have seen it run.
            std::thread::sleep(std::time::Duration::from_millis(20));
            init::kill(init);
        }
        init::wait_for_end(init);
        self.remove(&self.state()?)
    }

    fn state(&self) -> Result<Value, Failure> {
        let file = self.dir().join("state.json");
        let bytes = fs::read(file).map_err(|_| format!("container {} does not exist", self.id))?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    pub fn init(&self) -> Result<init::Init, Failure> {
        let state = self.state()?;
        let number = |name: &str| state[name].as_u64().ok_or("a damaged state.json");
        Ok(init::Init {
            pid: i32::try_from(number("init_process_pid")?)?,
            start_time: number("init_process_start")?,
        })
    }

    /// Fails unless the container lives, as a command in it or a change of it needs.
    pub fn reach(&self) -> Result<(), Failure> {
        match init::is_alive(self.init()?) {
            true => Ok(()),
            false => Err(format!("container {} is not running", self.id).into()),
        }
    }

    pub fn show(&self) -> Result<(), Failure> {
        let state = self.state()?;
        let lives = init::is_alive(self.init()?);
        let word = if lives { "running" } else { "stopped" };
        let shown = json!({"id": self.id, "status": word, "bundle": state["bundle"]});
        println!("{shown}");
        Ok(())
    }

    pub fn kill(&self) -> Result<(), Failure> {
        init::kill(self.init()?);
        Ok(())
    }

    pub fn delete(&self, force: bool) -> Result<(), Failure> {
        let state = match self.state() {
            // One that was killed while it created leaves an empty directory.
            Err(_) if force => {
                let _ = fs::remove_dir_all(self.dir());
                return Ok(());
            }
            other => other?,
        };
        if self.told("delete-fails").is_some() {
            return Err("told to fail".into());
        }
        let init = self.init()?;
        if init::is_alive(init) {
            if !force {
                return Err(format!("container {} is running", self.id).into());
            }
            init::kill(init);
        }
        self.wait_if_told("delete-waits")?;
        self.remove(&state)
    }

    /// The directory first, then the hooks: so does runc.
    fn remove(&self, state: &Value) -> Result<(), Failure> {
        if let Some(cgroup) = state["cgroup"].as_str() {
            cgroup::remove(Path::new(cgroup))?;
        }
        fs::remove_dir_all(self.dir())?;
        if self.told("no-hooks").is_some() {
            return Ok(());
        }
        for _ in 0..1 + u8::from(self.told("hooks-twice").is_some()) {
            hooks::poststop(&self.id, state)?;
        }
        Ok(())
    }
}
