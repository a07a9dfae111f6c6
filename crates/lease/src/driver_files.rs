//! The driver's files for containers, by the configuration: which CDI specification brings libcuda, and whether the node
//! has the files that it names.

use crate::cdi::{self, Edits, Node, Specification};
use crate::config::{Config, DriverFiles};
use crate::error::{Error, Result};
use crate::paths::shown;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The source of the driver's files.
#[derive(Debug, Default)]
pub struct Source {
    /// The specification, with files that the node has. None where runmig adds nothing.
    pub specification: Option<Specification>,
    /// What runmig passed over or left out.
    pub warnings: Vec<Error>,
}

/// Returns whether a low-level runtime adds the driver's files by itself.
pub fn is_nvidia(runtime: &Path) -> bool {
    let name = runtime.file_name().unwrap_or_default();
    name.as_encoded_bytes()
        .starts_with(b"nvidia-container-runtime")
}

/// Finds the source. `others_bring`: says whether the container gets libcuda without runmig, if no specification has it.
///
/// # Errors
/// Nothing brings libcuda, or a specification names files that the node lacks.
pub fn find(config: &Config, others_bring: bool, node: Node<'_>) -> Result<Source> {
    let mut dirs: Vec<PathBuf> = cdi::DIRS.map(PathBuf::from).into();
    dirs.extend_from_slice(&config.cdi_dirs);
    find_in(&dirs, config, others_bring, node)
}

/// The same in these folders.
///
/// # Errors
/// As `find`.
pub fn find_in(
    dirs: &[PathBuf],
    config: &Config,
    others_bring: bool,
    node: Node<'_>,
) -> Result<Source> {
    let may_lack = match config.driver_files {
        DriverFiles::None | DriverFiles::NvidiaRuntime => return Ok(Source::default()),
        DriverFiles::Auto => others_bring,
        DriverFiles::Cdi => false,
    };
    let found = match cdi::read(dirs, &config.cdi_kinds, node) {
        Err(why) if may_lack => cdi::Found {
            skipped: vec![why],
            ..cdi::Found::default()
        },
        found => found?,
    };
    let mut warnings = found.skipped;
    let Some(mut specification) = found.files else {
        if may_lack {
            return Ok(Source {
                specification: None,
                warnings,
            });
        }
        let none = lacks(&config.cdi_kinds, dirs, &found.without);
        return Err(warnings.into_iter().fold(none, |e, why| e.and(Some(why))));
    };
    let unwanted = &config.driver_hooks_skip;
    warnings.extend(check(&mut specification, unwanted, node)?);
    Ok(Source {
        specification: Some(specification),
        warnings,
    })
}

fn lacks(kinds: &[String], dirs: &[PathBuf], without: &[PathBuf]) -> Error {
    let text = match without {
        [] => format!(
            "cannot find a CDI specification of {} in {}",
            kinds.join(" or "),
            shown(dirs, " or ")
        ),
        files => format!(
            "cannot find libcuda in CDI specification {}",
            shown(files, " or ")
        ),
    };
    Error::new(text).hint(format!(
        "run {}, which writes nothing where the only GPU is in MIG mode without a slice; if the image has a driver of its own, set driver_files = \"none\"",
        cdi::GENERATE
    ))
}

/// Leaves out unwanted hooks and missing sockets, and returns the warnings.
///
/// # Errors
/// Another file is missing.
fn check(
    specification: &mut Specification,
    unwanted: &[String],
    node: Node<'_>,
) -> Result<Vec<Error>> {
    let is_there = node.is_there;
    let (mut missing, mut left_out) = (BTreeSet::new(), BTreeSet::new());
    let mut unfit = None;
    let mut look = |edits: &mut Edits| {
        let is_unwanted = |hook: &cdi::Hook| unwanted.iter().any(|name| hook.is_called(name));
        edits.hooks.retain(|hook| !is_unwanted(hook));
        for path in edits.hooks.iter().map(|hook| &hook.path) {
            if !is_there(path) {
                missing.insert(path.clone());
            } else if let Err(why) = (node.check_program)(path) {
                // A low-level runtime runs it as root.
                unfit.get_or_insert((path.clone(), why));
            }
        }
        edits.mounts.retain(|mount| {
            let lacks = mount.is_bind() && !is_there(&mount.host_path);
            let is_of_daemon = is_of_daemon(&mount.host_path);
            match lacks {
                true if is_of_daemon => left_out.insert(mount.host_path.clone()),
                true => missing.insert(mount.host_path.clone()),
                false => false,
            };
            !(lacks && is_of_daemon)
        });
    };
    specification.each().for_each(&mut look);
    let file = specification.file.display();
    let hint = format!("write it anew: {}", specification.command());
    if let Some(first) = missing.first() {
        let more = match missing.len() {
            1 => String::new(),
            2 => ", and so is 1 other file".to_owned(),
            all => format!(", and so are {} other files", all - 1),
        };
        return Err(Error::new(format!(
            "cannot use CDI specification {file}: {} is missing{more}",
            first.display()
        ))
        .hint(hint));
    }
    if let Some((hook, why)) = unfit {
        let what = format!(
            "cannot use CDI specification {file}: hook {}",
            hook.display()
        );
        return Err(Error::new(what).caused_by(why).hint(hint));
    }
    let warning = |path: &PathBuf| {
        let text = format!(
            "containers do not get {}, which CDI specification {file} names: it is missing",
            path.display()
        );
        Error::new(text).hint(format!("start its daemon, or {hint}"))
    };
    Ok(left_out.iter().map(warning).collect())
}

/// Returns whether a path is a socket or a folder that a daemon of NVIDIA's makes when it starts: persistenced, the
/// fabric manager, MPS.
fn is_of_daemon(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let name = parts.last().copied().unwrap_or_default();
    let is_socket = name == "socket" || name.ends_with(".sock") || name.ends_with(".socket");
    let below = |pair: &[&str]| {
        let daemons = ["nvidia-persistenced", "nvidia-fabricmanager", "mps"];
        pair[0] == "run" && daemons.contains(&pair[1]) || pair == ["nvidia", "mps"]
    };
    let is_run = parts.windows(2).any(below) || parts.contains(&"nvidia-mps");
    is_socket || (is_run && !name.contains(".so"))
}

impl cdi::Hook {
    /// Returns whether this is the name or the path of the program, or the name of its command: `nvidia-ctk`,
    /// `update-ldcache`.
    fn is_called(&self, name: &str) -> bool {
        let mut words = self.args.iter().take_while(|word| !word.starts_with('-'));
        let is_file = self.path.file_name().is_some_and(|file| file == name);
        is_file || self.path == Path::new(name) || words.any(|word| word == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidias_runtime_brings_the_files_by_itself() {
        for (runtime, brings) in [
            ("/usr/bin/nvidia-container-runtime", true),
            ("nvidia-container-runtime.cdi", true),
            ("/usr/bin/nvidia-container-runtime/runc", false),
            ("/usr/bin/runc", false),
            ("", false),
        ] {
            assert_eq!(is_nvidia(Path::new(runtime)), brings, "{runtime}");
        }
    }

    #[test]
    fn looks_in_usual_and_configured_folders() {
        let config = Config {
            cdi_kinds: vec!["vendor.example/none".to_owned()],
            cdi_dirs: vec!["/nowhere".into()],
            ..Config::default()
        };
        let line = find(&config, false, Node::HERE).unwrap_err().line();
        let all = [&cdi::DIRS[..], &["/nowhere"]].concat().join(" or ");
        let none = format!("cannot find a CDI specification of vendor.example/none in {all}");
        assert!(line.contains(&none), "{line}");
    }
}
