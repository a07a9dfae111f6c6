//! The configuration files, as runmig reads them, and rules that can have no effect.

use super::finding::Finding;
use super::host::Host;
use runmig_lease::config::{Config, DIRECTORY};
use std::path::{Path, PathBuf};

pub fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![named(host)];
    findings.extend(handlers());
    findings.push(absent_gpus(host));
    findings
}

/// The configuration of this call.
fn named(host: &Host) -> Finding {
    match &host.config {
        Err(e) => Finding::failed("file", e),
        Ok(Config { file: None, .. }) => {
            Finding::ok("file", "no file, so every key has its default")
        }
        Ok(Config {
            file: Some(file), ..
        }) => Finding::ok("file", format!("{} is valid", file.display())),
    }
}

/// The files of other handlers.
fn handlers() -> Vec<Finding> {
    let files = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    files.retain(|file| {
        file.extension().is_some_and(|e| e == "toml") && !file.ends_with("config.toml")
    });
    files.sort();
    let one = |file: &PathBuf| match Config::read(file) {
        Ok(_) => Finding::ok("handler", format!("{} is valid", file.display())),
        Err(e) => Finding::failed("handler", &e),
    };
    files.iter().map(one).collect()
}

fn absent_gpus(host: &Host) -> Finding {
    const ID: &str = "gpus";
    let (Ok(config), seen) = (&host.config, host.seen()) else {
        return Finding::skip(ID, "the configuration cannot be read");
    };
    let seen = match seen {
        Ok(seen) => seen,
        Err(why) => return Finding::skip(ID, why),
    };
    let gpus = &seen.inventory.snapshot.gpus;
    let absent = config.absent_gpus(gpus);
    let file = config.file.as_deref().unwrap_or(Path::new(DIRECTORY));
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
