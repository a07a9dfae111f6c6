//! `runmig-claim`: the hook of a container whose slice belongs to a claim of Kubernetes. It writes the ledger alone.
//!
//! At createRuntime it records the container, before any process of the image runs, and fails the create if the claim
//! has no slice. At poststop it removes the record.

use super::{OciState, read_state, succeeds};
use crate::log;
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{Context, Error, Result, printable};
use runmig_lease::process;
use runmig_lease::request::identity;
use runmig_lease::store::{ClaimName, Container, Key};
use runmig_lease::{Leases, NoBundles, POD_PATIENCE};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::PathBuf;

const HELP: &str = "a hook of containers with a claim of Kubernetes; reads the container's state on standard input\n\
    attach --claim UID --device NAME [--config FILE]  createRuntime: records the container on the claim's slice\n\
    detach --claim UID --device NAME [--config FILE]  poststop: removes that record";

type State = OciState<Map<String, Value>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Attach,
    Detach,
}

#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    verb: Verb,
    claim: ClaimName,
    config: Option<PathBuf>,
}

/// Runs the hook with the arguments of this process.
pub fn main() {
    if !succeeds("runmig-claim", HELP, "runmig-claim", run) {
        std::process::exit(1);
    }
}

fn run(args: &[OsString]) -> Result<()> {
    // The low-level runtime must never write to a broken pipe.
    let state: Result<State> = read_state(std::io::stdin().lock());
    let arguments = parse(args)?;
    let state = state?;
    let config = Config::named(arguments.config.as_deref())?;
    let leases = Leases::existing(&config, Box::new(NoBundles))?;
    let Some(leases) = leases.map(|leases| leases.acting_as(Actor::Hook)) else {
        return match arguments.verb {
            Verb::Attach => Err(Error::new(format!(
                "cannot start container {}: there is no ledger in {}",
                printable(&state.id),
                config.state_dir.display()
            ))
            .hint("delete the pod; the kubelet prepares the claim of the next one")),
            Verb::Detach => Ok(()),
        };
    };
    log::start(&config);
    match arguments.verb {
        Verb::Attach => attach(&leases, &arguments.claim, &state),
        Verb::Detach => leases.detach(&arguments.claim, &state.id),
    }
}

fn attach(leases: &Leases<'_>, claim: &ClaimName, state: &State) -> Result<()> {
    let what = || format!("start container {}", printable(&state.id));
    let init = state.pid().and_then(process::of);
    let init = init.ok_or_else(|| Error::new("the container's state has no living process"));
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let annotations: Vec<(String, String)> = state.annotations.iter().filter_map(text).collect();
    // The engine sets one of the keys with the pod's uid. A pod that sets the other engine's contradicts it.
    let identity = identity(&annotations).context(what)?;
    let container = Container {
        // The hook does not learn the low-level runtime's root, and the bundle is as unique.
        key: Key::new(state.bundle.clone(), state.id.clone()),
        bundle: state.bundle.clone(),
        namespace: identity.namespace,
        pod: identity.pod,
        pod_uid: identity.pod_uid,
        container_name: identity.container_name,
        ..Container::default()
    };
    leases
        .attach(claim, container, init.context(what)?, POD_PATIENCE)
        .map(drop)
}

fn parse(args: &[OsString]) -> Result<Arguments> {
    let unknown = |arg: &OsString| {
        let arg = printable(&arg.to_string_lossy());
        Error::new(format!("cannot use argument {arg}")).hint("see runmig-claim --help")
    };
    let missing = |what: &str| {
        Error::new(format!("cannot find argument {what}")).hint("see runmig-claim --help")
    };
    let mut rest = args.iter();
    let verb = match rest.next() {
        Some(arg) if arg == "attach" => Verb::Attach,
        Some(arg) if arg == "detach" => Verb::Detach,
        Some(arg) => return Err(unknown(arg)),
        None => return Err(missing("attach or detach")),
    };
    let (mut uid, mut device, mut config) = (None, None, None);
    while let Some(arg) = rest.next() {
        let place = match arg.to_str() {
            Some("--claim") => &mut uid,
            Some("--device") => &mut device,
            Some("--config") => &mut config,
            _ => return Err(unknown(arg)),
        };
        let value = rest
            .next()
            .ok_or_else(|| missing(&format!("after {}", arg.to_string_lossy())))?;
        *place = Some(value.clone());
    }
    let text = |value: Option<OsString>, name: &str| {
        let value = value.ok_or_else(|| missing(name))?;
        value.into_string().map_err(|value| unknown(&value))
    };
    Ok(Arguments {
        verb,
        claim: ClaimName {
            uid: text(uid, "--claim")?,
            device: text(device, "--device")?,
        },
        config: config.map(PathBuf::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Arguments> {
        let args: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        parse(&args)
    }

    #[test]
    fn reads_arguments() {
        let read = parsed("attach --claim u-1 --device d --config /x").unwrap();
        let claim = ClaimName {
            uid: "u-1".to_owned(),
            device: "d".to_owned(),
        };
        assert_eq!(
            (read.verb, read.claim, read.config),
            (Verb::Attach, claim, Some("/x".into()))
        );
        for (text, why) in [
            ("", "cannot use argument ;"),
            ("stop", "cannot use argument stop"),
            ("detach --claim u-1", "cannot find argument --device"),
            ("detach --claim", "cannot find argument after --claim"),
            ("attach --lease x", "cannot use argument --lease"),
        ] {
            let line = parsed(text).unwrap_err().line();
            assert!(line.contains(why), "{text}: {line}");
        }
    }
}
