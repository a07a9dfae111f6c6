//! Finds and runs the programs that are installed beside this one.

use super::Front;
use super::lowlevel::{self, c_string};
use super::spawn;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::programs;
use runmig_lease::trust;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Returns the path of a program of runmig, which lies beside this one wherever runmig is installed.
pub fn program(name: &str) -> Result<PathBuf> {
    const LINK: &str = "/proc/self/exe";
    let us = std::fs::read_link(LINK).context(|| format!("find this program: read {LINK}"))?;
    let path = us.with_file_name(name);
    let found = trust::program(&path).map_err(|e| {
        Error::new(path.display().to_string())
            .hint(format!("install {name} beside runmig"))
            .caused_by(e)
    });
    found.map(|(canonical, _)| canonical)
}

/// Hands this call to `runmig-slice`, under the name that the engine called. That name picks the
/// configuration. `ended` is the end of the low-level runtime, if that has run for this call.
pub fn exec(front: &Front<'_>, ended: Option<ExitStatus>) -> Result<Infallible> {
    let path = program(programs::SLICE)?;
    let name = front.name.unwrap_or(path.as_os_str());
    let mut argv = lowlevel::argv(name, front.args)?;
    if let Some(ended) = ended {
        argv.insert(1, c_string(OsStr::new(&spawn::argument(ended)))?);
    }
    lowlevel::exec(&path, &argv)
}
