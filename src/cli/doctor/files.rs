//! The driver's files for containers: a CDI specification whose files exist.

use super::finding::Finding;
use super::host::Host;
use runmig_lease::cdi;
use runmig_lease::config::DriverFiles;
use std::path::{Path, PathBuf};

const GENERATE: &str =
    "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml (package nvidia-container-toolkit-base)";

pub fn findings(host: &Host) -> Vec<Finding> {
    let choice = host.configured().driver_files;
    match choice {
        DriverFiles::None => {
            return vec![Finding::ok(
                "cdi",
                "the images have the driver's files (driver_files = \"none\")",
            )];
        }
        DriverFiles::NvidiaRuntime => {
            return vec![Finding::ok(
                "cdi",
                "nvidia-container-runtime adds the driver's files (driver_files = \"nvidia-runtime\")",
            )];
        }
        DriverFiles::Auto | DriverFiles::Cdi => {}
    }
    let found = match cdi::read(&cdi::DIRS.map(Path::new)) {
        Ok(found) => found,
        Err(e) => return vec![Finding::failed("cdi", &e)],
    };
    let mut findings: Vec<Finding> = { found.skipped.iter() }
        .map(|e| Finding::warned("skipped", e))
        .collect();
    let Some(edits) = found.files else {
        let text = format!(
            "no CDI specification of nvidia.com/gpu in {}, so containers get the driver's files only from their images",
            cdi::DIRS.join(" or ")
        );
        findings.push(match choice {
            DriverFiles::Cdi => Finding::fail("cdi", text, GENERATE),
            _ => Finding::warn("cdi", text, GENERATE),
        });
        return findings;
    };
    let missing: Vec<PathBuf> = edits
        .host_files()
        .filter(|file| !file.exists())
        .map(Path::to_owned)
        .collect();
    findings.push(match missing.as_slice() {
        [] => Finding::ok("cdi", "every file of the CDI specification exists"),
        [first, rest @ ..] => Finding::fail(
            "cdi",
            format!("the CDI specification names {} missing files, the first is {}; an update of the driver removes files", rest.len() + 1, first.display()),
            GENERATE,
        ),
    });
    findings
}
