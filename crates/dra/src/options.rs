//! The command line of `runmig-dra`.

use crate::host;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::programs;
use std::ffi::OsString;
use std::path::PathBuf;

/// The text of `--help`.
pub(crate) const HELP: &str = "\
The Kubernetes DRA driver for MIG slices. It runs as root, once on each node.

usage: runmig-dra [check | show] [--node NAME] [--kubeconfig FILE] [--cdi-dir DIR] [--claim-hook FILE] [--host-root DIR]
       runmig-dra --install-hook DIR

  check              print each problem of the cluster, the kubelet and the engine with its repair, and serve nothing;
                     migctl doctor --kubernetes joins them with those of the node
  show               print the ResourceSlices that this node would publish, without a cluster

  --node NAME        the name of the Node object (default: the environment variable NODE_NAME)
  --kubeconfig FILE  the way to the API server (default: the service account of the pod)
  --cdi-dir DIR      the folder for CDI files, one that the engine reads (default: /var/run/cdi)
  --claim-hook FILE  runmig-claim, where the low-level runtime of the node finds it (default: beside this program)
  --host-root DIR    the node's root folder, as this process sees it in a pod (default: /)
  --install-hook DIR copies runmig-claim from beside this program into a folder, and ends
  --containerd-config FILE
                     the file that check reads (default: /etc/containerd/config.toml)
  --json             lets check print an object on each line, and exit with 0

The configuration is /etc/runmig/config.toml, as for runmig.
";

/// The options of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The name of the Node object.
    pub(crate) node: String,
    /// The file that names the API server. None inside of a pod.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The folder for CDI files.
    pub(crate) cdi_dir: PathBuf,
    /// The hook of the containers. None for the one beside this program.
    pub(crate) claim_hook: Option<PathBuf>,
    /// The configuration of containerd.
    pub(crate) containerd_config: PathBuf,
    /// The node's root folder, as this process sees it.
    pub(crate) host_root: PathBuf,
    /// Whether the findings of `check` are for a program.
    pub(crate) json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            node: String::new(),
            kubeconfig: None,
            cdi_dir: "/var/run/cdi".into(),
            claim_hook: None,
            containerd_config: "/etc/containerd/config.toml".into(),
            host_root: "/".into(),
            json: false,
        }
    }
}

/// The meaning of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Print `HELP`.
    Help,
    /// Copy the hook of the containers into a folder.
    InstallHook(PathBuf),
    /// Serve the node.
    Serve(Options),
    /// Look for problems of the node.
    Check(Options),
    /// Print the ResourceSlices.
    Show(Options),
}

/// Reads the arguments. `node_name` is the environment variable NODE_NAME.
pub(crate) fn parse(
    args: impl IntoIterator<Item = OsString>,
    node_name: Option<String>,
) -> Result<Call> {
    let mut options = Options::default();
    let mut args = args.into_iter().peekable();
    let verb = args.next_if(|arg| arg == "check" || arg == "show");
    while let Some(arg) = args.next() {
        let arg = arg.to_string_lossy().into_owned();
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
            None => (arg, None),
        };
        let mut value = || {
            let value = inline.clone().or_else(|| args.next());
            value.ok_or_else(|| wrong(format!("option {name} has no value")))
        };
        match name.as_str() {
            "-h" | "--help" => return Ok(Call::Help),
            "--node" => options.node = value()?.to_string_lossy().into_owned(),
            "--cdi-dir" => options.cdi_dir = value()?.into(),
            "--install-hook" => return Ok(Call::InstallHook(value()?.into())),
            "--host-root" => options.host_root = value()?.into(),
            "--claim-hook" => options.claim_hook = Some(value()?.into()),
            "--containerd-config" => options.containerd_config = value()?.into(),
            "--json" => options.json = true,
            "--kubeconfig" => options.kubeconfig = Some(value()?.into()),
            _ => return Err(wrong(format!("argument {name:?} is unknown"))),
        }
    }
    if options.node.is_empty() {
        options.node = node_name.unwrap_or_default();
    }
    if !is_node_name(&options.node) {
        return Err(match options.node.as_str() {
            "" => Error::new("cannot find the name of this node")
                .hint("name it with --node, or set NODE_NAME from spec.nodeName"),
            name => wrong(format!("{name:?} is not the name of a Node object")),
        });
    }
    Ok(match verb.as_ref().and_then(|verb| verb.to_str()) {
        Some("check") => Call::Check(options),
        Some(_) => Call::Show(options),
        None => Call::Serve(options),
    })
}

/// Returns the hook of the containers, which the low-level runtime executes as root.
pub(crate) fn hook(options: &Options) -> Result<PathBuf> {
    let hook = match &options.claim_hook {
        Some(hook) => hook.clone(),
        None => std::env::current_exe()
            .context(|| "find the folder of this program")?
            .with_file_name(programs::CLAIM),
    };
    host::hook(&options.host_root, &hook)
}

fn wrong(what: String) -> Error {
    Error::new(what).hint("run runmig-dra --help")
}

/// Returns whether a text is a DNS subdomain, as the name of a Node object is.
fn is_node_name(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let is_label = |label: &str| {
        let is_edge = |c: char| c != '-';
        label.bytes().all(inner) && label.starts_with(is_edge) && label.ends_with(is_edge)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &str, node_name: Option<&str>) -> Result<Call, String> {
        let args = args.split_whitespace().map(OsString::from);
        parse(args, node_name.map(str::to_owned)).map_err(|e| e.line())
    }

    #[test]
    fn reads_every_option() {
        let n = || Options {
            node: "n".to_owned(),
            ..Options::default()
        };
        let by_file = Options {
            kubeconfig: Some("/f".into()),
            ..n()
        };
        let elsewhere = Options {
            cdi_dir: "/c".into(),
            claim_hook: Some("/h".into()),
            host_root: "/r".into(),
            ..n()
        };
        let looks = || Options {
            containerd_config: "/f".into(),
            json: true,
            ..n()
        };
        for (args, node_name, call) in testkit::rows! {
            "", Some("n") => Call::Serve(n());
            "--node=n --kubeconfig /f", Some("a.b") => Call::Serve(by_file);
            "--cdi-dir=/c --claim-hook /h --host-root=/r", Some("n") => Call::Serve(elsewhere);
            "--help", None => Call::Help;
            "check --node n --containerd-config /f --json", None => Call::Check(looks());
            "show --node n --containerd-config /f --json", None => Call::Show(looks());
            "--install-hook /d", None => Call::InstallHook("/d".into());
        } {
            assert_eq!(parsed(args, node_name), Ok(call), "{args}");
        }
    }

    #[test]
    fn names_wrong_arguments() {
        for (args, words) in testkit::rows! {
            "" => "hint: name it with --node";
            "--node" => "option --node has no value";
            "--node a_b" => "\"a_b\" is not the name of a Node object";
            "--nodes a" => "argument \"--nodes\" is unknown";
        } {
            testkit::has(&parsed(args, None).unwrap_err(), words);
        }
        assert!(is_node_name("a.b"));
        let long = "a".repeat(254);
        for name in ["", "-a", "a..b", "A", long.as_str()] {
            assert!(!is_node_name(name), "{name}");
        }
    }
}
