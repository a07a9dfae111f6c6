//! The log of the process: standard error, and for actions on claims the ledger's log beside it.

use runmig_lease::config::Config;
use runmig_lease::log;
use tracing::Metadata;
use tracing_subscriber::fmt::writer::{MakeWriterExt, OptionalWriter};

/// The module whose lines are about ResourceSlices alone. They would push the actions out of the ledger's log.
const PUBLISH: &str = "runmig_dra::publish";

/// Starts the log, on standard error alone without a ledger.
pub(crate) fn start(ledger: Option<&Config>) {
    let state_dir = ledger.map(|config| config.state_dir.clone());
    // Each line opens it anew, since runmig begins a new one while this process runs.
    let open = move || state_dir.as_deref().and_then(log::open);
    let ledger = move || open().map_or_else(OptionalWriter::none, OptionalWriter::some);
    let actions = ledger.with_filter(|line| is_action(line.target()));
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_writer(std::io::stderr.with_filter(is_ours).and(actions))
        .init();
}

/// The libraries have a line for each try. Ours is in `obstacle`.
fn is_ours(line: &Metadata<'_>) -> bool {
    line.target().starts_with("runmig")
}

fn is_action(module: &str) -> bool {
    module.starts_with("runmig") && !module.starts_with(PUBLISH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_out_resource_slices() {
        for module in [
            "runmig_dra::prepare",
            "runmig_dra::sweep",
            "runmig_lease::reclaim::release",
        ] {
            assert!(is_action(module), "{module}");
        }
        for module in ["runmig_dra::publish", "kube_client::client", "hyper"] {
            assert!(!is_action(module), "{module}");
        }
    }
}
