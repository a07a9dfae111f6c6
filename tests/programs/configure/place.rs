//! A folder that is taken for /, with runmig installed in it.

use testkit::prelude::*;

pub struct Place {
    dir: TempDir,
    /// What each call begins with: an engine with its program.
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
        for built in [env!("CARGO_BIN_EXE_runmig"), env!("CARGO_BIN_EXE_migctl")] {
            let name = Path::new(built).file_name().unwrap();
            let here = place.path("/usr/local/bin").join(name);
            fs::hard_link(built, &here).unwrap_or_else(|_| copy_program(Path::new(built), &here));
        }
        place
    }

    /// Has each call be for an engine with this program.
    pub fn of(mut self, engine: &str, program: &Path) -> Place {
        self.base = [engine, "--executable", program.to_str().unwrap()]
            .map(str::to_owned)
            .to_vec();
        self
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

    /// It is refused, in these words, and nothing is changed.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str], words: &str) {
        let before = self.files();
        self.configure(arguments).refused_for(words);
        assert_eq!(self.files(), before);
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
