//! The programs of runmig: in one folder, of one version, root's alone.

use super::command;
use super::finding::Finding;
use super::host::Host;
use nix::sys::statvfs::{FsFlags, statvfs};
use runmig_lease::programs::{FRONT, HOOK, SLICE};
use runmig_lease::trust;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const INSTALL: &str = "install runmig again: its package, or scripts/install";

pub fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![
        files(&host.folder),
        versions(&host.folder),
        others(&host.folder),
    ];
    findings.push(executable(&host.folder));
    findings.push(low_level(host));
    findings
}

fn files(folder: &Path) -> Finding {
    for name in [FRONT, SLICE, HOOK, "migctl"] {
        let path = folder.join(name);
        if let Err(e) = trust::program(&path) {
            let text = format!("cannot trust {}: {}", path.display(), e.line());
            return Finding::fail("files", text, INSTALL);
        }
    }
    let text = format!(
        "runmig, runmig-slice, runmig-hook and migctl in {} belong to root alone",
        folder.display()
    );
    Finding::ok("files", text)
}

/// Compares what the programs say of themselves. runmig-slice answers as runmig, so the hook stands for both.
fn versions(folder: &Path) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    let hook = folder.join(HOOK);
    match command::output(&hook, &["--version"], &[]) {
        Err(e) => Finding::failed("version", &e),
        Ok(said) if said.split([' ', ':']).nth(1) == Some(ours) => {
            Finding::ok("version", format!("the programs are of version {ours}"))
        }
        Ok(said) => {
            let said = said.lines().next().unwrap_or_default().to_owned();
            Finding::fail(
                "version",
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
        let here = [FRONT, SLICE, HOOK, "migctl"].map(|name| folder.join(name));
        here.into_iter().filter(|file| is_other(file, &own))
    });
    let copies: Vec<String> = copies.map(|file| file.display().to_string()).collect();
    match copies.is_empty() {
        true => Finding::ok("copies", "no other folder of PATH has a copy"),
        false => Finding::warn(
            "copies",
            format!("other copies are on PATH: {}", copies.join(", ")),
            "remove the copies that no engine calls",
        ),
    }
}

/// A link to a program of ours is no copy.
fn is_other(file: &Path, own: &Path) -> bool {
    file.canonicalize()
        .is_ok_and(|file| file.is_file() && file.parent() != Some(own))
}

fn executable(folder: &Path) -> Finding {
    match statvfs(folder) {
        Ok(of) if of.flags().contains(FsFlags::ST_NOEXEC) => Finding::fail(
            "noexec",
            format!(
                "the file system of {} forbids to run programs (noexec)",
                folder.display()
            ),
            format!("mount -o remount,exec {}", folder.display()),
        ),
        Ok(_) => Finding::ok(
            "noexec",
            format!("the file system of {} runs programs", folder.display()),
        ),
        Err(e) => Finding::warn(
            "noexec",
            format!("cannot read the flags of {}: {e}", folder.display()),
            INSTALL,
        ),
    }
}

/// Asks runmig, which finds and trusts the low-level runtime as in a create.
fn low_level(host: &Host) -> Finding {
    let file = host
        .config
        .as_ref()
        .ok()
        .and_then(|config| config.file.as_deref());
    let file = file.map(|file| file.to_string_lossy().into_owned());
    let environment: Vec<(&str, &str)> = { file.iter() }
        .map(|file| ("RUNMIG_CONFIG", file.as_str()))
        .collect();
    match command::output(&host.folder.join(FRONT), &["--version"], &environment) {
        Ok(said) => {
            let runtime = said.lines().next().unwrap_or_default();
            let text = format!("the low-level runtime answers: {runtime}");
            Finding::ok("low-level-runtime", text)
        }
        Err(e) => Finding::failed("low-level-runtime", &e),
    }
}
