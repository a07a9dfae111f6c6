//! The configuration files, as runmig reads them, and rules that can have no effect.

use super::check::Check;
use super::finding::Finding;
use super::host::Host;
use crate::cli::layout_options::Choice;
use runmig_lease::config::{Config, DIRECTORY};
use runmig_lease::error::printable;
use runmig_lease::model::Gpu;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub const CHECKS: &[Check] = &[
    Check::new(
        "configuration.file",
        "runmig reads the configuration",
        "correct the line that it names",
    ),
    Check::new(
        "configuration.handler",
        "runmig reads the files of other handlers in /etc/runmig",
        "correct the line that it names",
    ),
    Check::new(
        "configuration.layout",
        "the file has the layout of this machine",
        "correct the file, or layout.file and layout.config",
    ),
    Check::new(
        "configuration.gpus",
        "every GPU that a rule names exists",
        "change the rule",
    ),
    Check::new(
        "configuration.limits",
        "every limit can be reached on this machine",
        "lower the limit, or remove it",
    ),
    Check::new(
        "configuration.profiles",
        "the rules permit a profile that this machine offers",
        "change policy.profiles",
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![named(host)];
    let files = handlers();
    let one = |file: &PathBuf| match Config::read(file) {
        Ok(_) => Finding::ok(
            "configuration.handler",
            format!("{} is valid", file.display()),
        ),
        Err(e) => Finding::failed("configuration.handler", &e),
    };
    findings.extend(files.iter().map(one));
    if files.is_empty() {
        let text = format!("{DIRECTORY} has no file of another handler");
        findings.push(Finding::skip("configuration.handler", text));
    }
    findings.push(layout(host));
    findings.extend(rules(host));
    findings
}

/// The configuration of this call.
fn named(host: &Host) -> Finding {
    const ID: &str = "configuration.file";
    match &host.config {
        Err(e) => Finding::failed(ID, e),
        Ok(Config { file: None, .. }) => Finding::ok(ID, "no file, so every key has its default"),
        Ok(Config {
            file: Some(file), ..
        }) => Finding::ok(ID, format!("{} is valid", file.display())),
    }
}

/// Returns the files of other handlers, sorted.
pub fn handlers() -> Vec<PathBuf> {
    let files = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    files.retain(|file| {
        file.extension().is_some_and(|e| e == "toml") && !file.ends_with("config.toml")
    });
    files.sort();
    files
}

/// The layout that `migctl apply` and its unit would apply. No allocation needs it.
fn layout(host: &Host) -> Finding {
    const ID: &str = "configuration.layout";
    let Ok(config) = &host.config else {
        return Finding::skip(ID, "the configuration cannot be read");
    };
    match Choice::configured(config.layout.clone()).map(|choice| choice.read()) {
        None => Finding::skip(ID, "the configuration names no layout"),
        Some(Ok(layout)) => {
            let text = format!("layout {} can be read", printable(&layout.name));
            Finding::ok(ID, text)
        }
        Some(Err(e)) => Finding::warned(ID, &e),
    }
}

/// The rules beside the GPUs of this machine.
fn rules(host: &Host) -> Vec<Finding> {
    let rules = &CHECKS[3..];
    let Ok(config) = &host.config else {
        return Finding::skip_all(rules, "the configuration cannot be read");
    };
    let seen = match host.seen() {
        Ok(seen) => seen,
        Err(why) => return Finding::skip_all(rules, why),
    };
    let gpus = &seen.inventory.snapshot.gpus;
    let file = config.file.as_deref().unwrap_or(Path::new(DIRECTORY));
    vec![
        absent_gpus(config, gpus, file),
        limits(config, gpus, file),
        profiles(config, gpus, file),
    ]
}

fn absent_gpus(config: &Config, gpus: &[Gpu], file: &Path) -> Finding {
    const ID: &str = "configuration.gpus";
    let absent = config.absent_gpus(gpus);
    match absent.is_empty() {
        true => Finding::ok(ID, "every GPU that a rule names exists"),
        false => Finding::warn(
            ID,
            format!(
                "rules name GPUs that this machine lacks: {}",
                absent.join(", ")
            ),
            format!(
                "change exclude_gpus, reserve or kubernetes.gpus in {}",
                file.display()
            ),
        ),
    }
}

/// A limit above all that the machine has never binds, so it is a slip or of another machine.
fn limits(config: &Config, gpus: &[Gpu], file: &Path) -> Finding {
    const ID: &str = "configuration.limits";
    let beyond = config.unreachable_limits(gpus);
    match beyond.is_empty() {
        true => Finding::ok(ID, "every limit can be reached on this machine"),
        false => Finding::warn(
            ID,
            format!("limits are out of reach: {}", beyond.join("; ")),
            format!("lower the limit or remove it in {}", file.display()),
        ),
    }
}

fn profiles(config: &Config, gpus: &[Gpu], file: &Path) -> Finding {
    const ID: &str = "configuration.profiles";
    let offered: BTreeSet<&String> = { gpus.iter() }
        .flat_map(|gpu| gpu.profiles.iter().map(|profile| &profile.name))
        .collect();
    let denied = config.policy.denied_profiles(gpus);
    match (offered.len(), denied.len()) {
        (0, _) => Finding::skip(ID, "no GPU is in MIG mode, so none offers a profile"),
        (all, denied) if all == denied => Finding::warn(
            ID,
            "policy.profiles permits no profile that this machine offers, so it refuses every slice",
            format!(
                "change policy.profiles in {}; migctl gpus shows the profiles",
                file.display()
            ),
        ),
        (all, denied) => Finding::ok(
            ID,
            format!("containers may have {} of {all} profiles", all - denied),
        ),
    }
}
