//! Programs of Prometheus: those of the folder `$RUNMIG_PROMETHEUS`, or Debian's, which `scripts/setup full` unpacks.

use std::path::{Path, PathBuf};

/// Returns the file of a program, which may be missing.
pub fn program(cache: &Path, name: &str) -> PathBuf {
    let chosen = std::env::var_os("RUNMIG_PROMETHEUS").map(|folder| Path::new(&folder).join(name));
    let debian = || cache.join("prometheus/root/usr/bin").join(name);
    chosen.filter(|file| file.exists()).unwrap_or_else(debian)
}
