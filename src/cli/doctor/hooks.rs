//! The hook, in the surroundings that an engine gives it: no environment, another folder, nothing on standard input, and the
//! engine's own mounts.

use super::check::Check;
use super::command::{self, Surroundings};
use super::finding::Finding;
use super::host::Host;
use super::{processes, programs};
use crate::cli::configure::Engine;
use clap::ValueEnum;
use runmig_lease::programs::HOOK;
use std::path::Path;

pub const CHECKS: &[Check] = &[
    Check::new(
        "hooks.runs",
        "runmig-hook runs as a low-level runtime starts it",
        "install runmig again",
    ),
    Check::new(
        "hooks.seen",
        "each engine that runs finds runmig-hook among its mounts",
        "restart the engine, or install runmig where it sees it",
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    let hook = host.folder.join(HOOK);
    let mut findings = vec![runs(host)];
    findings.extend(seen(&hook));
    findings
}

fn runs(host: &Host) -> Finding {
    const ID: &str = "hooks.runs";
    let hook = match programs::runnable(&host.folder, HOOK) {
        Ok(hook) => hook,
        Err(why) => return Finding::skip(ID, why),
    };
    match command::output(&hook, &["--version"], &Surroundings::Only(&[])) {
        Ok(_) => Finding::ok(
            ID,
            format!("{} runs without an environment", hook.display()),
        ),
        Err(e) => Finding::failed(ID, &e),
    }
}

/// Looks through the mounts of each engine, which may be in a container or have folders hidden by its unit.
fn seen(hook: &Path) -> Vec<Finding> {
    const ID: &str = "hooks.seen";
    let running = processes::commands();
    let of = |engine: &Engine| {
        let (pid, name) = { running.iter() }.find(|(_, name)| engine.process() == Some(name))?;
        let root = format!("/proc/{pid}/root");
        // A process that ends meanwhile has no root.
        let begins = Path::new(&root).read_dir().is_ok();
        let inside = Path::new(&root).join(hook.strip_prefix("/").unwrap_or(hook));
        begins.then(|| match inside.is_file() {
            true => Finding::ok(
                ID,
                format!("{name} (process {pid}) finds {}", hook.display()),
            ),
            false => Finding::fail(
                ID,
                format!(
                    "{name} (process {pid}) has mounts of its own, without {}",
                    hook.display()
                ),
                format!("restart {name}; if it runs in a container, mount the folder there"),
            ),
        })
    };
    let findings: Vec<Finding> = { Engine::value_variants().iter() }.filter_map(of).collect();
    match findings.is_empty() {
        true => vec![Finding::skip(ID, "no engine runs as a server here")],
        false => findings,
    }
}
