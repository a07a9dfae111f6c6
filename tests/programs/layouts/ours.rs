//! migctl on a simulated machine, with a configuration of its own.

use testkit::prelude::*;

pub struct Ours {
    pub machine: Machine,
    dir: TempDir,
}

impl Ours {
    pub fn on(machine: Machine) -> Ours {
        let dir = tempfile::Builder::new()
            .prefix("runmig-layouts-")
            .tempdir()
            .unwrap();
        chmod(dir.path(), 0o755);
        let text = format!(
            "state_dir = {:?}\ndata_dir = {:?}\n[driver]\nlibrary = {:?}\nroot = {:?}\n",
            dir.path().join("state"),
            dir.path().join("data"),
            machine.library(),
            machine.dir()
        );
        fs::write(dir.path().join("config.toml"), text).unwrap();
        Ours { machine, dir }
    }

    /// Writes a file under a name of its own.
    pub fn file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join(format!("layout-{}.yaml", unique()));
        fs::write(&path, text).unwrap();
        path
    }

    #[track_caller]
    pub fn migctl(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_migctl"));
        command
            .args(arguments)
            .env("RUNMIG_CONFIG", self.dir.path().join("config.toml"))
            .env_remove("RUST_BACKTRACE")
            .current_dir(self.dir.path());
        said(&mut command)
    }

    /// `migctl assert -f FILE ARGUMENTS`
    #[track_caller]
    pub fn assert(&self, file: &Path, arguments: &[&str]) -> Said {
        let file = ["assert", "-f", file.to_str().unwrap()];
        self.migctl(&[&file, arguments].concat())
    }
}
