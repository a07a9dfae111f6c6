//! The findings of `runmig-dra check`, where the driver for Kubernetes is installed.

use super::check::Check;
use super::command::{self, Surroundings};
use super::finding::Finding;
use super::host::Host;
use crate::cli::configure;
use runmig_lease::programs::DRA;

pub const CHECKS: &[Check] = &[Check::new(
    "kubernetes.dra",
    "runmig-dra check finds nothing, where a kubelet runs",
    "the hint of runmig-dra check",
)];

const ID: &str = "kubernetes.dra";

pub fn findings(host: &Host) -> Vec<Finding> {
    let config = host.configured();
    let kubelet = &config.kubernetes.kubelet_dir;
    if !kubelet.is_dir() {
        let text = format!("no kubelet runs here: {} does not exist", kubelet.display());
        return vec![Finding::skip(ID, text)];
    }
    let beside = host.folder.join(DRA);
    let program = match beside.is_file() {
        true => Some(beside),
        false => configure::search(DRA),
    };
    let Some(program) = program else {
        return vec![Finding::skip(
            ID,
            "runmig-dra is not installed on the host; in its pod, call runmig-dra check",
        )];
    };
    let node = nix::unistd::gethostname().unwrap_or_default();
    let node = node.to_string_lossy().into_owned();
    let kubeconfig = std::env::var("KUBECONFIG").ok();
    let file = config.file.as_deref();
    let file = file.map(|file| file.to_string_lossy().into_owned());
    let mut environment = vec![("NODE_NAME", node.as_str())];
    environment.extend(kubeconfig.as_deref().map(|name| ("KUBECONFIG", name)));
    environment.extend(file.as_deref().map(|file| ("RUNMIG_CONFIG", file)));
    match command::lines(&program, &["check"], &Surroundings::Only(&environment)) {
        Err(e) => vec![Finding::failed(ID, &e)],
        Ok(lines) => lines.iter().filter_map(|line| finding(line)).collect(),
    }
}

/// Returns the finding of a line: a weight, and the text with its hint.
fn finding(line: &str) -> Option<Finding> {
    let (weight, line) = line.split_once(' ')?;
    let (text, repair) = match line.trim().split_once("; hint: ") {
        Some((text, repair)) => (text, repair),
        None => (line.trim(), "see docs/dra.md"),
    };
    match weight {
        "ok" => Some(Finding::ok(ID, text)),
        "warn" => Some(Finding::warn(ID, text, repair)),
        "fail" => Some(Finding::fail(ID, text, repair)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_of_the_driver() {
        assert_eq!(
            finding("ok    all is well"),
            Some(Finding::ok(ID, "all is well"))
        );
        let failed = Finding::fail(
            ID,
            "cannot publish GPUs: none is in MIG mode",
            "nvidia-smi -mig 1",
        );
        let line = "fail  cannot publish GPUs: none is in MIG mode; hint: nvidia-smi -mig 1";
        assert_eq!(finding(line), Some(failed));
        assert_eq!(finding("runmig-dra: cannot serve"), None);
    }
}
