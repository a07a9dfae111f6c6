//! The programs that lie beside this one.

use super::Front;
use super::lowlevel::c_string;
use crate::error::{Context, Error, Result};
use crate::trust;
use std::path::PathBuf;

/// A program of ours, wherever we were installed.
pub fn program(name: &str) -> Result<PathBuf> {
    let us = std::fs::read_link("/proc/self/exe").context(|| "find this program")?;
    let path = us.with_file_name(name);
    trust::program(&path).map_err(|e| {
        Error::new(path.display().to_string())
            .hint(format!("install {name} beside runmig"))
            .caused_by(e)
    })
}

/// Hands this call to `runmig-slice`, under the name we were called by: that picks the
/// configuration.
pub fn exec(front: &Front<'_>) -> Result<i32> {
    let path = program("runmig-slice")?;
    let name = front.name.unwrap_or(path.as_os_str());
    let mut argv = vec![c_string(name)?];
    for arg in front.args {
        argv.push(c_string(arg)?);
    }
    match nix::unistd::execv(&c_string(path.as_os_str())?, &argv)
        .context(|| format!("run {}", path.display()))? {}
}
