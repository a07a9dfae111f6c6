//! The checks of the engine and the kubelet: CDI, and the folders of files and sockets.

use super::{Finding, fail, ok, warn};
use crate::options::Options;
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Error};
use runmig_lease::trust;
use std::io::ErrorKind;
use std::path::Path;

/// The most bytes of a configuration of containerd.
const MAX_SIZE: u64 = 1 << 20;

pub(super) fn findings(options: &Options, config: &Config) -> Vec<Finding> {
    vec![
        folder(&options.cdi_dir),
        containerd(options),
        kubelet(&config.kubernetes.kubelet_dir),
    ]
}

/// The engine runs the hooks of a CDI file as root.
fn folder(dir: &Path) -> Finding {
    let looked = match dir.exists() {
        true => trust::folder(dir),
        false => trust::room_for(dir),
    };
    let looked = looked.context(|| format!("use CDI folder {}", dir.display()));
    match looked {
        Ok(()) => ok(format!(
            "CDI folder {} belongs to root alone",
            dir.display()
        )),
        Err(e) => fail(&e),
    }
}

/// CRI-O always has CDI, and containerd from 2.0 on unless its configuration switches it off.
fn containerd(options: &Options) -> Finding {
    let file = &options.containerd_config;
    let text = match std::fs::symlink_metadata(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return ok(format!(
                "{} is missing, so containerd has its default, CDI",
                file.display()
            ));
        }
        _ => trust::read_to_string(file, MAX_SIZE),
    };
    let name = file.display();
    let text = match text.context(|| format!("read the configuration of containerd, {name}")) {
        Ok(text) => text,
        Err(e) => return warn(&e),
    };
    match setting(&text, options.cdi_dir.as_path()) {
        Cdi::On => ok(format!("containerd has CDI by {name}")),
        Cdi::Off => fail(
            &Error::new(format!("cannot give slices to containers: {name} switches CDI off"))
                .hint("remove enable_cdi = false and restart containerd"),
        ),
        Cdi::Elsewhere => fail(
            &Error::new(format!(
                "cannot give slices to containers: cdi_spec_dirs in {name} lacks {}",
                options.cdi_dir.display()
            ))
            .hint("add the folder to cdi_spec_dirs and restart containerd, or use --cdi-dir"),
        ),
        Cdi::Old => warn(
            &Error::new(format!(
                "cannot find out whether containerd has CDI: {name} is of version 1 or 2, and containerd 1 has CDI only \
                 with enable_cdi = true"
            ))
            .hint("upgrade to containerd 2, or add enable_cdi = true"),
        ),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Cdi {
    On,
    Off,
    Elsewhere,
    /// The configuration is of containerd 1, where CDI is off by default.
    Old,
}

/// Reads the setting line by line, since its table has another name in each version.
fn setting(text: &str, cdi_dir: &Path) -> Cdi {
    let value = |key: &str| {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let mut found = lines.filter(|(name, _)| name.trim() == key);
        found.next_back().map(|(_, value)| value.trim().to_owned())
    };
    let dirs = value("cdi_spec_dirs");
    let dir = format!("\"{}\"", cdi_dir.display());
    // /var/run leads to /run on every system of today.
    let other = dir.replace("/var/run/", "/run/");
    match value("enable_cdi").as_deref() {
        Some("false") => Cdi::Off,
        _ if dirs.is_some_and(|dirs| {
            let quoted = dirs.replace('\'', "\"").replace("/var/run/", "/run/");
            !quoted.contains(&other)
        }) =>
        {
            Cdi::Elsewhere
        }
        Some("true") => Cdi::On,
        _ if matches!(value("version").as_deref(), Some("1" | "2")) => Cdi::Old,
        _ => Cdi::On,
    }
}

fn kubelet(dir: &Path) -> Finding {
    let registry = dir.join("plugins_registry");
    match trust::folder(&registry) {
        Ok(()) => ok(format!(
            "the kubelet looks for drivers in {}",
            registry.display()
        )),
        Err(e) => fail(
            &Error::new(format!(
                "cannot register at the kubelet: use {}",
                registry.display()
            ))
            .hint("set kubernetes.kubelet_dir to the kubelet's --root-dir")
            .caused_by(e),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_settings_of_containerd() {
        let read = |text: &str| setting(text, Path::new("/var/run/cdi"));
        assert_eq!(read("version = 3\n"), Cdi::On);
        assert_eq!(read("version = 2\n"), Cdi::Old);
        assert_eq!(read("version = 2\n  enable_cdi = true\n"), Cdi::On);
        assert_eq!(read("version = 3\n  enable_cdi = false\n"), Cdi::Off);
        assert_eq!(read("cdi_spec_dirs = ['/etc/cdi', '/run/cdi']\n"), Cdi::On);
        assert_eq!(read("cdi_spec_dirs = [\"/etc/cdi\"]\n"), Cdi::Elsewhere);
    }
}
