//! The driver's files for containers: a CDI specification whose files exist.

use super::check::Check;
use super::finding::Finding;
use super::host::Host;
use runmig_lease::cdi;
use runmig_lease::config::DriverFiles;
use std::path::{Path, PathBuf};

const GENERATE: &str =
    "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml (package nvidia-container-toolkit-base)";

pub const CHECKS: &[Check] = &[
    Check::new(
        "files.cdi",
        "the CDI specification of nvidia.com/gpu is readable, and its files exist",
        "nvidia-ctk cdi generate",
    ),
    Check::new(
        "files.skipped",
        "no other CDI specification is unreadable",
        "correct or remove the file",
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    let choice = host.configured().driver_files;
    match choice {
        DriverFiles::None => {
            return without("the images have the driver's files (driver_files = \"none\")");
        }
        DriverFiles::NvidiaRuntime => {
            return without(
                "nvidia-container-runtime adds the driver's files (driver_files = \"nvidia-runtime\")",
            );
        }
        DriverFiles::Auto | DriverFiles::Cdi => {}
    }
    let found = match cdi::read(&cdi::DIRS.map(Path::new)) {
        Ok(found) => found,
        Err(e) => {
            let why = "the specifications cannot be read, see files.cdi";
            return vec![
                Finding::failed("files.cdi", &e),
                Finding::skip("files.skipped", why),
            ];
        }
    };
    let mut findings: Vec<Finding> = { found.skipped.iter() }
        .map(|e| Finding::warned("files.skipped", e))
        .collect();
    if findings.is_empty() {
        let text = "no other CDI specification is unreadable";
        findings.push(Finding::ok("files.skipped", text));
    }
    let Some(edits) = found.files else {
        let text = format!(
            "no CDI specification of nvidia.com/gpu in {}, so containers get the driver's files only from their images",
            cdi::DIRS.join(" or ")
        );
        findings.push(match choice {
            DriverFiles::Cdi => Finding::fail("files.cdi", text, GENERATE),
            _ => Finding::warn("files.cdi", text, GENERATE),
        });
        return findings;
    };
    let missing: Vec<PathBuf> = edits
        .host_files()
        .filter(|file| !file.exists())
        .map(Path::to_owned)
        .collect();
    findings.push(match missing.as_slice() {
        [] => Finding::ok("files.cdi", "every file of the CDI specification exists"),
        [first, rest @ ..] => Finding::fail(
            "files.cdi",
            format!("the CDI specification names {} missing files, the first is {}; an update of the driver removes files", rest.len() + 1, first.display()),
            GENERATE,
        ),
    });
    findings
}

/// No CDI specification is in use.
fn without(text: &str) -> Vec<Finding> {
    let skipped = "no CDI specification is in use";
    vec![
        Finding::ok("files.cdi", text),
        Finding::skip("files.skipped", skipped),
    ]
}
