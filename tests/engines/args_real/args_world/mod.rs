//! A directory in which every word is a bundle and a root, watched.

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use testkit::prelude::*;

pub mod vectors;

/// Valid up to the limit's name, which runtimes look at after they have made the state directory.
const CONFIG: &str = r#"{"ociVersion":"1.0.2","root":{"path":"rootfs"},"mounts":[],
"process":{"args":["/none"],"cwd":"/","user":{"uid":0,"gid":0},
"rlimits":[{"type":"RLIMIT_BOGUS","hard":1,"soft":1}]},
"linux":{"namespaces":[{"type":"mount"},{"type":"pid"}]}}"#;

/// The default place of runc's state. Others on this machine have theirs there as well, so a folder
/// of the world's own is mounted in its place.
const DEFAULT_ROOT: &str = "/run/runc";

pub struct World {
    dir: TempDir,
    inotify: File,
    watched: HashMap<i32, PathBuf>,
}

#[derive(Debug, Default)]
pub struct Seen {
    /// The configuration it opened.
    pub config: Option<PathBuf>,
    /// The root and the id of the state directory it made.
    pub state: Option<(PathBuf, OsString)>,
    /// The files it made.
    pub logs: Vec<PathBuf>,
    pub stderr: String,
}

impl World {
    pub fn new(words: impl Iterator<Item = &'static str>) -> World {
        let dir = tempfile::tempdir().unwrap();
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        assert!(fd >= 0, "inotify: {}", std::io::Error::last_os_error());
        // SAFETY: no other value has this descriptor.
        let inotify = unsafe { File::from_raw_fd(fd) };
        let mut world = World {
            dir,
            inotify,
            watched: HashMap::new(),
        };
        let top = world.dir().to_owned();
        let words = words.filter(|w| !w.is_empty() && !w.contains('@') && *w != "cfg");
        let bundles = words.collect::<BTreeSet<_>>().into_iter();
        let bundles = bundles.map(|w| top.join(w));
        for bundle in bundles.chain([top.clone()]).collect::<Vec<_>>() {
            fs::create_dir_all(bundle.join("rootfs")).unwrap();
            fs::write(bundle.join("config.json"), CONFIG).unwrap();
            fs::write(bundle.join("cfg"), CONFIG).unwrap();
            world.add(&bundle);
            // roots, for crun has gone into the bundle before it looks at them
            for root in ["one", "two"].map(|w| bundle.join(w)) {
                fs::create_dir_all(&root).unwrap();
                world.add(&root);
            }
        }
        fs::create_dir_all(DEFAULT_ROOT).unwrap();
        for default in [top.join("xdg/crun"), world.default_root()] {
            fs::create_dir_all(&default).unwrap();
            world.add(&default);
        }
        world.events();
        world
    }

    fn add(&mut self, dir: &Path) {
        let path = CString::new(dir.as_os_str().as_bytes()).unwrap();
        let events = libc::IN_OPEN | libc::IN_CREATE;
        let fd = self.inotify.as_raw_fd();
        // SAFETY: a string that ends in NUL and outlives the call.
        let watch = unsafe { libc::inotify_add_watch(fd, path.as_ptr(), events) };
        assert!(watch >= 0, "{}", dir.display());
        self.watched.insert(watch, dir.to_owned());
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the folder at `DEFAULT_ROOT` for the watched process.
    fn default_root(&self) -> PathBuf {
        self.dir().join("default-root")
    }

    pub fn env(&self, name: &str) -> Option<OsString> {
        (name == "XDG_RUNTIME_DIR").then(|| self.dir().join("xdg").into())
    }

    /// `@` stands for this directory.
    pub fn fill(&self, word: &str) -> OsString {
        word.replace('@', self.dir().to_str().unwrap()).into()
    }

    pub fn watch(&self, program: &Path, args: &[OsString]) -> Seen {
        const OWN_ROOT: &str = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", OWN_ROOT, "sh"])
            .args([&self.default_root(), Path::new(DEFAULT_ROOT), program])
            .args(args)
            .current_dir(self.dir())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("XDG_RUNTIME_DIR", self.env("XDG_RUNTIME_DIR").unwrap())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let mut seen = Seen {
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            ..Seen::default()
        };
        for (dir, name, mask) in self.events() {
            let directory = mask & libc::IN_ISDIR != 0;
            if mask & libc::IN_OPEN != 0 {
                if !directory && (name == "config.json" || name == "cfg") {
                    seen.config = Some(dir.join(name));
                }
            } else if !directory {
                seen.logs.push(dir.join(name));
            } else if name != "checkpoint" {
                // restore makes its default directory for images as well
                seen.state = Some((dir.to_owned(), name));
            }
        }
        for made in seen.logs.iter() {
            fs::remove_file(made).unwrap();
        }
        if let Some((root, id)) = &mut seen.state {
            let _ = fs::remove_dir_all(root.join(id));
            if *root == self.default_root() {
                *root = DEFAULT_ROOT.into();
            }
        }
        seen
    }

    /// Returns the events since the last call: the directory, the name in it, and the kind.
    fn events(&self) -> Vec<(&Path, OsString, u32)> {
        let mut all = Vec::new();
        let mut buffer = [0; 1 << 16];
        while let Ok(n) = (&self.inotify).read(&mut buffer) {
            let mut events = &buffer[..n];
            // struct inotify_event: watch, mask, cookie, length of the name, name
            while events.len() >= 16 {
                let word = |at: usize| u32::from_ne_bytes(events[at..at + 4].try_into().unwrap());
                let (watch, mask, len) = (word(0) as i32, word(4), word(12) as usize);
                let name = events[16..16 + len].split(|c| *c == 0).next().unwrap();
                let dir = self.watched[&watch].as_path();
                events = &events[16 + len..];
                all.push((dir, OsStr::from_bytes(name).to_owned(), mask));
            }
        }
        all
    }
}
