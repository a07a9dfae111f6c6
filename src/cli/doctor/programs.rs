//! The programs of runmig: in one folder, of one version, root's alone.

use super::check::Check;
use super::command::{self, Surroundings};
use super::configuration;
use super::finding::Finding;
use super::host::Host;
use nix::sys::statvfs::{FsFlags, statvfs};
use runmig_lease::config::Config;
use runmig_lease::error::Error;
use runmig_lease::programs::{FRONT, HOOK, SLICE};
use runmig_lease::trust;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub const CHECKS: &[Check] = &[
    Check::new(
        "programs.files",
        "runmig, runmig-slice, runmig-hook and migctl are in one folder and belong to root alone",
        "install runmig again",
    ),
    Check::new(
        "programs.noexec",
        "the file systems of these programs run programs",
        "mount them without noexec",
    ),
    Check::new(
        "programs.version",
        "the hook has the version of migctl",
        "install runmig again",
    ),
    Check::new(
        "programs.copies",
        "no other folder of PATH has a copy",
        "remove the copies that no engine calls",
    ),
    Check::new(
        "programs.low-level-runtime",
        "each configuration names a low-level runtime that root can trust, and it answers",
        "install runc, or set runtime",
    ),
    Check::new(
        "programs.crun",
        "a crun takes the specifications that current engines write",
        "install a newer crun, or set runtime to runc",
    ),
];

const INSTALL: &str = "install runmig again: its package, or scripts/install";
const OURS: [&str; 4] = [FRONT, SLICE, HOOK, "migctl"];
/// CRI-O brings a crun of its own, in a folder where runmig does not look.
const CRUN_OF_CRIO: &str = "/usr/libexec/crio/crun";

pub fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![
        files(&host.folder),
        executable(&host.folder),
        versions(&host.folder),
        others(&host.folder),
    ];
    findings.extend(low_level(host));
    findings
}

/// Returns a program of runmig that root may run, or the finding that tells why not.
pub fn runnable(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let path = folder.join(name);
    if trust::program(&path).is_err() {
        return Err(format!(
            "{} is not trusted, see programs.files",
            path.display()
        ));
    }
    match is_noexec(&path) {
        Some(true) => Err(format!(
            "{} cannot be run, see programs.noexec",
            path.display()
        )),
        _ => Ok(path),
    }
}

fn files(folder: &Path) -> Finding {
    for name in OURS {
        let path = folder.join(name);
        if let Err(e) = trust::program(&path) {
            let text = format!("cannot trust {}: {}", path.display(), e.line());
            return Finding::fail("programs.files", text, INSTALL);
        }
    }
    let text = format!(
        "runmig, runmig-slice, runmig-hook and migctl in {} belong to root alone",
        folder.display()
    );
    Finding::ok("programs.files", text)
}

/// Says whether the file system of a file forbids programs; none if that cannot be read. Each program may be a link or a
/// mount of its own.
fn is_noexec(file: &Path) -> Option<bool> {
    let of = statvfs(file).ok()?;
    Some(of.flags().contains(FsFlags::ST_NOEXEC))
}

fn executable(folder: &Path) -> Finding {
    const ID: &str = "programs.noexec";
    let seen = OURS.map(|name| (folder.join(name), is_noexec(&folder.join(name))));
    if let Some((file, _)) = seen.iter().find(|(_, is)| *is == Some(true)) {
        let shown = file.display();
        return Finding::fail(
            ID,
            format!("the file system of {shown} forbids to run programs (noexec)"),
            format!("mount -o remount,bind,exec \"$(findmnt -n -o TARGET -T {shown})\""),
        );
    }
    match seen.iter().find(|(_, is)| is.is_none()) {
        Some((file, _)) => Finding::skip(
            ID,
            format!("cannot read the mount flags of {}", file.display()),
        ),
        None => Finding::ok(
            ID,
            format!("the file system of {} runs programs", folder.display()),
        ),
    }
}

/// Compares what the programs say of themselves. runmig-slice answers as runmig, so the hook stands for both.
fn versions(folder: &Path) -> Finding {
    const ID: &str = "programs.version";
    let ours = env!("CARGO_PKG_VERSION");
    let hook = match runnable(folder, HOOK) {
        Ok(hook) => hook,
        Err(why) => return Finding::skip(ID, why),
    };
    match command::output(&hook, &["--version"], &Surroundings::Ours) {
        Err(_) => Finding::skip(ID, "the hook does not run, see hooks.runs"),
        Ok(said) if said.split([' ', ':']).nth(1) == Some(ours) => {
            Finding::ok(ID, format!("the programs are of version {ours}"))
        }
        Ok(said) => {
            let said = said.lines().next().unwrap_or_default().to_owned();
            Finding::fail(
                ID,
                format!(
                    "migctl is of version {ours}, and {} says {said}",
                    hook.display()
                ),
                INSTALL,
            )
        }
    }
}

/// Names copies in other folders, which an engine or an administrator may call instead.
fn others(folder: &Path) -> Finding {
    let own = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: BTreeSet<PathBuf> = std::env::split_paths(&path)
        .filter_map(|folder| folder.canonicalize().ok())
        .filter(|folder| *folder != own)
        .collect();
    let copies = folders.iter().flat_map(|folder| {
        let here = OURS.map(|name| folder.join(name));
        here.into_iter().filter(|file| is_other(file, &own))
    });
    let copies: Vec<String> = copies.map(|file| file.display().to_string()).collect();
    match copies.is_empty() {
        true => Finding::ok("programs.copies", "no other folder of PATH has a copy"),
        false => Finding::warn(
            "programs.copies",
            format!("other copies are on PATH: {}", copies.join(", ")),
            format!("remove those that no engine calls: {}", removal(&copies)),
        ),
    }
}

fn removal(files: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let word = |file: &String| match file.chars().all(is_plain) {
        true => file.clone(),
        false => format!("'{}'", file.replace('\'', "'\\''")),
    };
    let words: Vec<String> = files.iter().map(word).collect();
    format!("rm {}", words.join(" "))
}

/// A link to a program of ours is no copy.
fn is_other(file: &Path, own: &Path) -> bool {
    file.canonicalize()
        .is_ok_and(|file| file.is_file() && file.parent() != Some(own))
}

/// Asks runmig under each configuration. It finds and trusts the low-level runtime as in a create.
fn low_level(host: &Host) -> Vec<Finding> {
    let front = match runnable(&host.folder, FRONT) {
        Ok(front) => front,
        Err(why) => {
            return Finding::skip_all(&CHECKS[4..], &why);
        }
    };
    let Ok(config) = &host.config else {
        let why = "the configuration cannot be read, see configuration.file";
        return Finding::skip_all(&CHECKS[4..], why);
    };
    let mut handlers = configuration::handlers();
    handlers.retain(|file| Config::read(file).is_ok());
    let handlers = handlers.into_iter().map(Some);
    let files: Vec<Option<PathBuf>> = [config.file.clone()].into_iter().chain(handlers).collect();
    let mut findings = Vec::new();
    let mut cruns = Vec::new();
    for file in files {
        let file = file.map(|file| file.to_string_lossy().into_owned());
        let variables: Vec<(&str, &str)> = { file.iter() }
            .map(|file| ("RUNMIG_CONFIG", file.as_str()))
            .collect();
        let ask = |word: &str| command::output(&front, &[word], &Surroundings::Only(&variables));
        match ask("--version") {
            Err(e) => findings.push(unanswered(host, file.as_deref(), &e)),
            Ok(said) => {
                let runtime = said.lines().next().unwrap_or_default();
                let of = file.as_deref().map(|file| format!(" ({file})"));
                findings.push(Finding::ok(
                    "programs.low-level-runtime",
                    format!(
                        "the low-level runtime answers: {runtime}{}",
                        of.unwrap_or_default()
                    ),
                ));
                if runtime.starts_with("crun") {
                    cruns.push((runtime.to_owned(), ask("features").is_ok()));
                }
            }
        }
    }
    findings.push(crun(&cruns));
    findings
}

fn unanswered(host: &Host, file: Option<&str>, e: &Error) -> Finding {
    const ID: &str = "programs.low-level-runtime";
    let names_none = host.configured().runtime.is_none();
    match names_none && trust::program(Path::new(CRUN_OF_CRIO)).is_ok() {
        true => Finding::fail(
            ID,
            e.reason(),
            format!(
                "set runtime = \"{CRUN_OF_CRIO}\", which CRI-O brings, in {}",
                file.unwrap_or("/etc/runmig/config.toml")
            ),
        ),
        false => Finding::failed(ID, e),
    }
}

/// The crun of Debian 12 refuses the specifications of newer engines, with runmig and without.
fn crun(cruns: &[(String, bool)]) -> Finding {
    const ID: &str = "programs.crun";
    match (cruns.first(), cruns.iter().find(|(_, is_new)| !is_new)) {
        (None, _) => Finding::skip(ID, "no configuration has crun as its low-level runtime"),
        (Some(_), Some((old, _))) => Finding::warn(
            ID,
            format!(
                "{old} is old: it refuses the specifications of containerd 2, CRI-O and podman 5"
            ),
            "install crun 1.21 or newer, or set runtime to runc",
        ),
        (Some((new, _)), None) => Finding::ok(
            ID,
            format!("{new} takes the specifications of current engines"),
        ),
    }
}
