//! A folder that is taken for /, with runmig installed in it.

use testkit::prelude::*;

pub struct Place {
    dir: TempDir,
    /// What each call begins with: an engine with its program, or with its file.
    base: Vec<String>,
}

/// Every file: where it leads to, its mode and what is in it.
pub type Files = BTreeMap<String, (Option<PathBuf>, u32, String)>;

pub const RUNMIG: &str = "/usr/local/bin/runmig";

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::Builder::new()
            .prefix("runmig-configure-")
            .tempdir()
            .unwrap();
        chmod(dir.path(), 0o755);
        let place = Place {
            dir,
            base: Vec::new(),
        };
        fs::create_dir_all(place.path("/usr/local/bin")).unwrap();
        for built in [
            env!("CARGO_BIN_EXE_runmig"),
            env!("CARGO_BIN_EXE_migctl"),
            env!("CARGO_BIN_EXE_runmig-request-wants-runtime-runmig"),
        ] {
            let name = Path::new(built).file_name().unwrap();
            let here = place.path("/usr/local/bin").join(name);
            fs::hard_link(built, &here).unwrap_or_else(|_| copy_program(Path::new(built), &here));
        }
        place
    }

    /// Has each call begin with these arguments.
    pub fn calls(mut self, base: &[&str]) -> Place {
        self.base = base.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Has each call be for an engine with this program.
    pub fn of(self, engine: &str, program: &Path) -> Place {
        self.calls(&[engine, "--executable", program.to_str().unwrap()])
    }

    /// One with a stand-in for an engine, which prints its version and otherwise reads one file alone.
    pub fn stub(engine: &str, version: &str) -> Place {
        let reads = "for file; do [ ! -f \"$file\" ] || exec cat \"$file\"; done";
        Place::stub_that(engine, version, reads)
    }

    /// The same, which otherwise does this.
    pub fn stub_that(engine: &str, version: &str, does: &str) -> Place {
        let place = Place::new();
        let program = place.path("/opt").join(engine);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        let says = format!("[ \"$1\" != --version ] || exec echo {version}\n{does}");
        script(&program, &says);
        place.of(engine, &program)
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// Says whether a path is a link to the runmig beside it.
    pub fn is_linked(&self, path: &str) -> bool {
        fs::read_link(self.path(path)).is_ok_and(|to| to == Path::new("runmig"))
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("/usr/local/bin/migctl"));
        command.args(["configure", "--root"]).arg(self.root());
        command.args(&self.base).args(arguments);
        command.env_remove("RUNMIG_CONFIG");
        command
    }

    #[track_caller]
    pub fn configure(&self, arguments: &[&str]) -> Said {
        said(&mut self.command(arguments))
    }

    /// Returns the files below /etc.
    pub fn files(&self) -> Files {
        let mut paths = all_below(&self.path("/etc"));
        // podman keeps a lock there, where it makes its networks with netavark.
        let networks = self.path("/etc/containers/networks");
        paths.retain(|path| !path.starts_with(&networks));
        let file = |path: PathBuf| {
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                return None;
            }
            let name = path.strip_prefix(self.root()).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let file = (fs::read_link(&path).ok(), meta.mode(), text);
            Some((name.display().to_string(), file))
        };
        paths.into_iter().filter_map(file).collect()
    }

    /// Returns the texts of all files below /etc.
    pub fn texts(&self) -> String {
        let texts = self.files().into_values().map(|(_, _, text)| text);
        texts.collect()
    }

    /// A dry run shows the very change that is then made; a second run changes nothing; `--remove`
    /// leaves what there was. In between it is looked at.
    #[track_caller]
    pub fn there_and_back(&self, look: impl FnOnce()) {
        let before = self.files();
        let also = |more: &[&str]| self.configure(more).ok().stdout;
        let dry = also(&["--dry-run"]);
        assert_eq!(self.files(), before, "a dry run changed something");
        assert_eq!(originals(&before), Vec::<String>::new());
        let patched = self.patched(&dry);
        let done = also(&[]);
        assert_ne!(self.files(), before, "{done}");
        let made = texts(&self.files());
        assert_eq!(made, patched, "the dry run showed something else:\n{dry}");
        let after = self.files();
        has(&also(&[]), "nothing to change");
        assert_eq!(self.files(), after, "a second run changed something");
        look();
        let gone = also(&["--remove"]);
        let says = |words| gone.contains(words);
        assert!(says("removal") || says("removed at once"), "{gone}");
        assert_eq!(self.files(), before, "--remove left something else");
        has(&also(&["--remove"]), "nothing to change");
    }

    /// Returns the files after `patch` applied the output of a dry run.
    fn patched(&self, diff: &str) -> BTreeMap<String, String> {
        let copy = Place {
            dir: TempDir::new().unwrap(),
            base: Vec::new(),
        };
        for (name, (_, _, text)) in self.files() {
            copy.write(&name, &text);
        }
        let file = copy.path("/diff");
        fs::write(&file, diff).unwrap();
        let mut patch = Command::new("patch");
        patch.args(["--batch", "-p1", "-d"]).arg(copy.root());
        said(patch.arg("-i").arg(&file)).ok();
        texts(&copy.files())
    }

    /// It is refused, in these words, and nothing is changed. Returns the line.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str], words: &str) -> String {
        let before = self.files();
        let line = self.configure(arguments).refused();
        has(&line, words);
        assert_eq!(self.files(), before);
        line
    }
}

/// Returns the originals that migctl has put beside the files that it rewrote.
pub fn originals(files: &Files) -> Vec<String> {
    let names = files.keys().filter(|name| name.contains(".before-runmig-"));
    names.cloned().collect()
}

fn texts(files: &Files) -> BTreeMap<String, String> {
    let kept = originals(files);
    let others = files.iter().filter(|(name, _)| !kept.contains(name));
    let texts = others.map(|(name, (_, _, text))| (name.clone(), text.clone()));
    texts.collect()
}

/// Each engine that is here, with its program and the file that names a runtime of this name.
pub fn engines(name: &str) -> Vec<(&'static str, PathBuf, String)> {
    let engines = testkit::rows! {
        "podman", on_path("podman") => format!("/etc/containers/containers.conf.d/50-{name}.conf");
        "containerd", on_path("containerd") => "/etc/containerd/config.toml".to_owned();
        "containerd", built("containerd", "containerd") => format!("/etc/containerd/conf.d/{name}.toml");
        "crio", built("cri-o", "crio") => format!("/etc/crio/crio.conf.d/20-{name}.conf");
        "docker", built("docker", "dockerd").or_else(|| on_path("dockerd")) => "/etc/docker/daemon.json".to_owned();
    };
    let there = engines.into_iter().filter_map(|(engine, program, file)| {
        if program.is_none() {
            skip_until_full(&format!("no {engine}; run scripts/setup full"));
        }
        Some((engine, program?, file))
    });
    there.collect()
}
