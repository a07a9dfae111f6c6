//! The checks of `runmig-dra`, which knows the cluster. It prints its findings as data, and they join those of the node.

use super::host::Host;
use crate::cli::{command, configure};
use runmig_lease::error::{Context, Result};
use runmig_lease::finding::{self, Finding};
use runmig_lease::programs::DRA;
use runmig_lease::trust;

pub fn findings(host: &Host) -> Vec<Finding> {
    ask(host).unwrap_or_else(|why| {
        let what = "runmig-dra answers";
        finding::named("kubernetes.driver", what, Err(why))
    })
}

fn ask(host: &Host) -> Result<Vec<Finding>, Finding> {
    let beside = Some(host.folder.join(DRA)).filter(|path| path.is_file());
    let program = beside.or_else(|| configure::search(DRA)).ok_or_else(|| {
        let repair = "call runmig-dra check in its pod, or install runmig-dra beside migctl";
        Finding::fail("runmig-dra is not installed on the host", repair)
    })?;
    trust::program(&program).context(|| format!("run {}", program.display()))?;
    let node = nix::unistd::gethostname().unwrap_or_default();
    let node = node.to_string_lossy().into_owned();
    let kubeconfig = std::env::var("KUBECONFIG").ok();
    let file = host.config()?.file.as_deref();
    let file = file.map(|file| file.to_string_lossy().into_owned());
    let mut variables = vec![("NODE_NAME", node.as_str())];
    variables.extend(kubeconfig.as_deref().map(|name| ("KUBECONFIG", name)));
    variables.extend(file.as_deref().map(|file| ("RUNMIG_CONFIG", file)));
    let said = command::output(&program, &["check", "--json"], &variables)?;
    let read = |line: &str| serde_json::from_str(line);
    let findings: Result<Vec<Finding>, _> = said.lines().map(read).collect();
    Ok(findings.context(|| format!("read the answer of {}", program.display()))?)
}
