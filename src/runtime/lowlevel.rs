//! Finds the low-level runtime, and hands over to it.

use super::args::Family;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::process;
use runmig_lease::trust;
use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folders of runc and crun in distributions, and of the runc that k3s and RKE2 unpack. PATH does not count, since the
/// caller sets it.
const PLACES: [&str; 8] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/rancher/rke2/bin",
];
const NAMES: [&str; 2] = ["runc", "crun"];

pub struct LowLevel {
    /// The canonical, absolute path.
    pub path: PathBuf,
    pub family: Family,
}

impl LowLevel {
    pub fn find(config: &Config) -> Result<LowLevel> {
        let named = |path: &Path| format!("low-level runtime {}", path.display());
        let path = match &config.runtime {
            Some(path) => path.clone(),
            None => NAMES
                .iter()
                .flat_map(|name| PLACES.iter().map(move |dir| Path::new(dir).join(name)))
                .find(|path| path.metadata().is_ok_and(|meta| !is_ourselves(&meta)))
                .ok_or_else(|| {
                    Error::new(format!(
                        "cannot find a low-level runtime: neither runc nor crun is in {}",
                        PLACES.join(", ")
                    ))
                    .hint("install runc, or set runtime in the configuration")
                })?,
        };
        let hint = || match &config.file {
            Some(file) => format!("set runtime in {}", file.display()),
            None => format!(
                "set runtime in {}/config.toml",
                runmig_lease::config::DIRECTORY
            ),
        };
        let (canonical, meta) = trust::program(&path)
            .map_err(|e| Error::new(named(&path)).hint(hint()).caused_by(e))?;
        if is_ourselves(&meta) {
            return Err(Error::new(format!("{} is runmig itself", named(&path))).hint(hint()));
        }
        Ok(LowLevel {
            family: Family::of(&canonical),
            path: canonical,
        })
    }

    /// Replaces this process with the low-level runtime. Returns only the error if that fails.
    pub fn exec(&self, args: &[OsString]) -> Error {
        let argv = argv(self.path.as_os_str(), args);
        let Err(e) = argv.and_then(|argv| exec(&self.path, &argv));
        e
    }
}

/// Replaces this process with a program.
pub fn exec(program: &Path, argv: &[CString]) -> Result<Infallible> {
    let path = c_string(program.as_os_str())?;
    process::hand_on_file_limit();
    let failed = nix::unistd::execv(&path, argv);
    process::survive_file_limit();
    failed.context(|| format!("run {}", program.display()))
}

/// Returns a program's name and its arguments in the kernel's form.
pub fn argv(name: &OsStr, args: &[OsString]) -> Result<Vec<CString>> {
    let args = args.iter().map(OsString::as_os_str);
    std::iter::once(name).chain(args).map(c_string).collect()
}

pub fn c_string(text: &OsStr) -> Result<CString> {
    CString::new(text.as_bytes()).because(|| "an argument holds a NUL")
}

/// Returns whether the low-level runtime is this program. Such a low-level runtime would call itself for
/// ever.
fn is_ourselves(runtime: &Metadata) -> bool {
    std::fs::metadata("/proc/self/exe")
        .is_ok_and(|us| (us.dev(), us.ino()) == (runtime.dev(), runtime.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn recognises_link_to_crun() {
        let dir = tempfile::tempdir().unwrap();
        let (crun, runc) = (dir.path().join("crun"), dir.path().join("runc"));
        std::fs::write(&crun, "").unwrap();
        std::fs::set_permissions(&crun, PermissionsExt::from_mode(0o755)).unwrap();
        symlink(&crun, &runc).unwrap();
        let config = Config {
            runtime: Some(runc),
            ..Config::default()
        };
        let found = LowLevel::find(&config).unwrap();
        assert_eq!(found.family, Family::Crun);
        assert_eq!(found.path, std::fs::canonicalize(&crun).unwrap());
    }
}
