//! Loads the module `nvidia-uvm`. On a server without a display nothing else does before the first program of CUDA.

use super::device_nodes::{Nodes, is_on_host};
use crate::error::{Context, Error, Result};
use crate::paths::inside;
use crate::process::program;
use crate::trust;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time for one program. A module loads within seconds.
const TIME: Duration = Duration::from_secs(30);

/// A program of the node that loads the module.
#[derive(Debug)]
pub struct Loader {
    /// The path on the node.
    path: PathBuf,
    /// The path at which this process sees the node's root folder.
    host_root: PathBuf,
    arguments: &'static [&'static str],
}

impl Loader {
    /// Returns the command in words.
    pub fn command(&self) -> String {
        format!("{} {}", self.path.display(), self.arguments.join(" "))
    }

    /// Says whether it is nvidia-modprobe, which makes the nodes too.
    pub fn makes_nodes(&self) -> bool {
        self.arguments[0] == "-u"
    }

    /// Fails for a program that users other than root can write to.
    ///
    /// # Errors
    /// As said, and a program that is not there.
    pub fn check(&self) -> Result<()> {
        let found = trust::program(&inside(&self.host_root, &self.path));
        { found.map(drop) }.context(|| format!("run {}", self.command()))
    }

    fn run(&self) -> Result<()> {
        self.check()?;
        let what = || format!("run {}", self.command());
        let mut command = Command::new(&self.path);
        command.args(self.arguments).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        if self.host_root != Path::new("/") {
            // An image has neither the program's libraries nor its shell.
            let root = CString::new(self.host_root.as_os_str().as_bytes()).context(what)?;
            let enter = move || {
                nix::unistd::chroot(root.as_c_str())?;
                Ok(nix::unistd::chdir(c"/")?)
            };
            // SAFETY: two system calls between fork and exec, on memory that the parent prepared.
            unsafe { command.pre_exec(enter) };
        }
        program::succeed(command, TIME).context(what).map(drop)
    }
}

/// Returns the programs that load the module: the configured nvidia-modprobe, else the one below the driver's root or of
/// the machine; then modprobe.
pub fn loaders(configured: Option<&Path>, driver_root: &Path, host_root: &Path) -> Vec<Loader> {
    let is_there = |path: &PathBuf| inside(host_root, path).exists();
    let roots = [driver_root, Path::new("/")];
    let usual = roots.map(|root| root.join("usr/bin/nvidia-modprobe"));
    let nvidia = match configured {
        Some(path) => Some(path.to_owned()),
        None => usual.into_iter().find(is_there),
    };
    let plain = ["/usr/sbin/modprobe", "/sbin/modprobe"].map(PathBuf::from);
    let plain = plain.into_iter().find(is_there);
    let loader = |arguments| {
        move |path| Loader {
            path,
            host_root: host_root.to_owned(),
            arguments,
        }
    };
    let nvidia = nvidia.map(loader(&["-u", "-c", "0"]));
    nvidia
        .into_iter()
        .chain(plain.map(loader(&["nvidia-uvm"])))
        .collect()
}

/// Reads the driver's numbers. If the module or a node that every container needs is missing, the programs have their turn
/// first, once each.
///
/// # Errors
/// The driver is not loaded, and no program helps.
pub fn nodes(configured: Option<&Path>, driver_root: &Path, host_root: &Path) -> Result<Nodes> {
    let is_whole = |nodes: &Nodes| {
        let mut wanted = nodes.required_nodes().into_iter();
        wanted.all(|node| is_on_host(driver_root, &node))
    };
    let mut found = Nodes::read(driver_root);
    let is_fine = match &found {
        Ok(nodes) => is_whole(nodes),
        Err(_) => !Nodes::lacks_uvm(driver_root),
    };
    if is_fine {
        return found;
    }
    let mut failed = None;
    for loader in loaders(configured, driver_root, host_root) {
        // A module alone makes no node, and a container gets a node of its own.
        if found.is_ok() && !loader.makes_nodes() {
            break;
        }
        let (command, ran) = (loader.command(), loader.run());
        found = Nodes::read(driver_root);
        if found.as_ref().is_ok_and(is_whole) {
            tracing::info!("nvidia-uvm or a node was missing, and {command} helped");
            return found;
        }
        let without_effect = || Error::new(format!("{command} did not help"));
        let why = ran.err().unwrap_or_else(without_effect);
        tracing::warn!("{}", why.line());
        failed.get_or_insert(why);
    }
    found.map_err(|e| match failed {
        Some(why) => e.caused_by(why),
        None => e,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn nvidias_program_has_its_turn_before_modprobe() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let of = |configured: Option<&str>| {
            let all = loaders(configured.map(Path::new), Path::new("/driver"), root);
            let words = all.iter().map(|it| (it.command(), it.makes_nodes()));
            words.collect::<Vec<_>>()
        };
        let nvidia = |path: &str| (format!("{path} -u -c 0"), true);
        let plain = |path: &str| (format!("{path} nvidia-uvm"), false);
        assert_eq!(of(None), []);
        put(root, "sbin/modprobe", "");
        put(root, "usr/bin/nvidia-modprobe", "");
        assert_eq!(
            of(None),
            [nvidia("/usr/bin/nvidia-modprobe"), plain("/sbin/modprobe")]
        );
        put(root, "usr/sbin/modprobe", "");
        put(root, "driver/usr/bin/nvidia-modprobe", "");
        let own = nvidia("/driver/usr/bin/nvidia-modprobe");
        assert_eq!(of(None), [own, plain("/usr/sbin/modprobe")]);
        assert_eq!(of(Some("/opt/it"))[0], nvidia("/opt/it"));
    }

    #[test]
    fn runs_the_trusted_program_of_the_nodes_root_alone() {
        let dir = tempfile::tempdir().unwrap();
        let loader = |host_root: &Path| Loader {
            path: "/bin/true".into(),
            host_root: host_root.to_owned(),
            arguments: &["-u"],
        };
        loader(Path::new("/")).run().unwrap();
        let there = loader(dir.path());
        let line = there.check().unwrap_err().line();
        assert_eq!(line, "cannot run /bin/true -u: no such file or directory");
        let own = dir.path().join("bin/true");
        program::install(&own, "#!/bin/sh\n");
        there.check().unwrap();
        // Nothing there runs scripts, and this process may have no right to change its root.
        assert!(there.run().is_err());
        fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let line = there.check().unwrap_err().line();
        assert!(
            line.contains("users other than root can write to it"),
            "{line}"
        );
    }

    #[test]
    fn program_runs_where_module_or_node_is_missing() {
        const BARE: &str = "Character devices:\n195 nvidia\n511 nvidia-caps\n";
        let whole = BARE.to_owned() + "507 nvidia-uvm\n";
        for (devices, runs, is_found) in [
            ("Character devices:\n", false, false),
            (BARE, true, true),
            (&whole, true, true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let (root, program) = (dir.path(), dir.path().join("modprobe"));
            put(root, "proc/devices", devices);
            let script = "#!/bin/sh\ncd ${0%/*}; echo 507 nvidia-uvm >>proc/devices; touch ran";
            program::install(&program, script);
            let found = nodes(Some(&program), root, Path::new("/"));
            assert_eq!((root.join("ran").exists(), found.is_ok()), (runs, is_found));
        }
    }
}
