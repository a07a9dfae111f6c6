//! The low-level runtimes, and what they need here.

use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Low {
    /// The distribution's.
    Runc,
    Crun,
    /// Newer ones, built by `scripts/engines`.
    NewRunc,
    NewCrun,
}

impl Low {
    pub fn name(self) -> &'static str {
        match self {
            Low::Runc | Low::NewRunc => "runc",
            Low::Crun | Low::NewCrun => "crun",
        }
    }

    pub fn is_crun(self) -> bool {
        self.name() == "crun"
    }

    /// Returns its path on this machine.
    pub fn find(self) -> Option<PathBuf> {
        let found = match self {
            Low::NewRunc | Low::NewCrun => built(self.name(), self.name()),
            _ => on_path(self.name()),
        };
        match self {
            _ if found.is_some() => {}
            Low::NewRunc | Low::NewCrun => {
                super::skip_until_full(&format!("{self:?} is not there; run scripts/setup full"));
            }
            _ => super::skip(&format!("{self:?} is not there; run scripts/setup")),
        }
        found
    }

    /// The path to configure. crun refuses a machine that has cgroup v1 with v2 beside it (what
    /// systemd calls hybrid), so there it gets a mount namespace in which v2 is not.
    pub fn configure(self, found: &Path, dir: &Path) -> PathBuf {
        const V2_BESIDE: &str = "/sys/fs/cgroup/unified";
        if !self.is_crun() || !Path::new(V2_BESIDE).exists() {
            return found.to_owned();
        }
        fs::create_dir_all(dir).unwrap();
        let front = dir.join(self.name());
        let (found, name) = (found.display(), self.name());
        let without = format!("umount {V2_BESIDE}; exec {found} \"$@\"");
        script(
            &front,
            &format!("exec unshare -m /bin/sh -c '{without}' {name} \"$@\""),
        );
        front
    }
}

/// An executable shell script; hooks and podman's calls have no PATH.
pub fn script(path: &Path, body: &str) {
    let path_variable = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    program(path, &format!("#!/bin/sh\n{path_variable}\n{body}\n"));
}

/// An executable text, written so that it can be executed at once.
pub fn program(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
    super::process::copy_program(&draft, path);
    fs::remove_file(draft).unwrap();
}

/// Puts another text in the place of one that a file has.
#[track_caller]
pub fn replace_in(file: &Path, old: &str, new: &str) {
    let text = fs::read_to_string(file).unwrap();
    let changed = text.replace(old, new);
    assert_ne!(text, changed);
    fs::write(file, changed).unwrap();
}

/// Puts a program of this build somewhere: users other than root may be able to write to where it was built.
pub fn install(program: &str, to: &Path) {
    let built = crate::program(program);
    fs::hard_link(&built, to).unwrap_or_else(|_| super::process::copy_program(&built, to));
}

/// A configuration whose state and data are in a folder, for the driver of a simulated machine. `more` is before its tables.
pub fn configuration(
    runtime: &Path,
    dir: &Path,
    machine: &Path,
    files: &str,
    more: &str,
) -> String {
    let (state, data) = (dir.join("state"), dir.join("data"));
    let library = machine.join("lib/libnvidia-ml.so.1");
    format!(
        "runtime = {runtime:?}\nstate_dir = {state:?}\ndata_dir = {data:?}\ndriver_files = \"{files}\"\n{more}\n\
         [driver]\nlibrary = {library:?}\nroot = {machine:?}\n"
    )
}

/// The folder in which scripts/setup keeps what it makes.
pub fn cache() -> Option<PathBuf> {
    Some(match std::env::var_os("RUNMIG_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/runmig"),
    })
}

/// A program of an engine that `scripts/engines` built.
pub fn built(engine: &str, program: &str) -> Option<PathBuf> {
    let path = cache()?.join("engines").join(engine).join("current/bin");
    Some(path.join(program)).filter(|path| path.exists())
}

pub fn on_path(name: &str) -> Option<PathBuf> {
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists())
}
