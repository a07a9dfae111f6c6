//! The poststop hook: reads the OCI state, gives the slice back, exits 0 whatever happens, since
//! low-level runtimes stop at a hook that fails and throw its output away. What went wrong is in the
//! log, and the lease stays on record for whoever comes next.

use crate::config::Config;
use crate::error::{Context, Error, Result};
use crate::lease::{self, Leases, Patience, Returned};
use crate::log;
use crate::store::{Lease, State};
use serde::Deserialize;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A state is a few hundred bytes, and the annotations of the container.
const MAX_STATE: u64 = 1 << 20;

#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    /// None in a hook that an administrator put into hooks.d: then the state says which.
    lease: Option<String>,
    config: Option<PathBuf>,
}

/// What we need of the OCI state; low-level runtimes differ in the rest.
#[derive(Debug, Deserialize)]
struct OciState {
    id: String,
    bundle: PathBuf,
}

pub fn main() {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.iter().any(|a| a == "--help" || a == "--version") {
        println!(
            "runmig-hook {}: a poststop hook of OCI runtimes; reads the container's state on standard \
             input and gives its GPU slice back [--lease ID] [--config FILE]",
            env!("CARGO_PKG_VERSION")
        );
        return;
    }
    if let Err(e) = run(&args) {
        tracing::error!("poststop: {}", e.line());
        eprintln!("runmig-hook: {}", e.line());
    }
}

fn run(args: &[OsString]) -> Result<()> {
    let arguments = parse(args)?;
    let config = match &arguments.config {
        Some(file) => Config::read(file)?,
        None => Config::for_program(None)?,
    };
    let Some(leases) = Leases::existing(&config)? else {
        return Ok(());
    };
    log::start(&config);
    let state = read_state(std::io::stdin().lock())?;
    let found = match (find(&leases, &arguments, &state), &arguments.lease) {
        // It may be damaged: its name still says what there is to give back.
        (Err(e), Some(lease)) if leases.store().get(lease).is_err() => {
            tracing::warn!(lease, "{}", e.line());
            return leases.release_damaged_of(lease, &state.bundle);
        }
        (found, _) => found?,
    };
    match found {
        Some(lease) => {
            let life = |lease: &Lease| life(lease, arguments.lease.is_some());
            match leases.release_unless(&lease.id, Patience::default(), life)? {
                Returned::Yes => Ok(()),
                Returned::No(life) => Err(Error::new(format!("the container still runs: {life}"))),
            }
        }
        // A second run, or after somebody else gave it back.
        None => Ok(()),
    }
}

/// All that is read of what others hand us, without acting on it.
pub(crate) fn understand(args: &[OsString], input: impl Read) -> Result<(Option<String>, String)> {
    let arguments = parse(args)?;
    Ok((arguments.lease, read_state(input)?.id))
}

fn parse(args: &[OsString]) -> Result<Arguments> {
    let mut parsed = Arguments::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || {
            rest.next().cloned().ok_or_else(|| {
                Error::new(format!("argument {} has no value", arg.to_string_lossy()))
            })
        };
        match arg.to_str() {
            Some("--lease") => parsed.lease = Some(value()?.to_string_lossy().into_owned()),
            Some("--config") => parsed.config = Some(value()?.into()),
            _ => {
                return Err(Error::new(format!(
                    "unknown argument {}",
                    arg.to_string_lossy()
                )));
            }
        }
    }
    Ok(parsed)
}

fn read_state(input: impl Read) -> Result<OciState> {
    let what = || "read the container's state from standard input";
    let mut bytes = Vec::new();
    input
        .take(MAX_STATE + 1)
        .read_to_end(&mut bytes)
        .context(what)?;
    if bytes.len() as u64 > MAX_STATE {
        return Err(Error::new(format!(
            "{}: more than {MAX_STATE} bytes",
            what()
        )));
    }
    if bytes.is_empty() {
        return Err(Error::new(format!("{}: it is empty", what())));
    }
    serde_json::from_slice(&bytes).context(what)
}

/// The lease that this call is about, if it is still there.
fn find(leases: &Leases<'_>, arguments: &Arguments, state: &OciState) -> Result<Option<Lease>> {
    if let Some(id) = &arguments.lease {
        let lease = leases.store().get(id)?;
        if let Some(other) = lease.as_ref().filter(|l| l.holder.key.id != state.id) {
            return Err(Error::new(format!(
                "the state is of container {}, the lease of container {}",
                state.id, other.holder.key.id
            )));
        }
        return Ok(lease);
    }
    let bundle = std::fs::canonicalize(&state.bundle).unwrap_or_else(|_| state.bundle.clone());
    let (all, _) = leases.store().list()?;
    let mut of_it = all.into_iter().filter(|l| is_of(l, &state.id, &bundle));
    match (of_it.next(), of_it.next()) {
        (Some(_), Some(_)) => Err(Error::new(format!(
            "container {} has more than one lease",
            state.id
        ))
        .hint("migctl gc gives back those whose container is gone")),
        (one, _) => Ok(one),
    }
}

fn is_of(lease: &Lease, id: &str, bundle: &Path) -> bool {
    lease.state != State::Releasing && lease.holder.key.id == id && lease.holder.bundle == bundle
}

/// A hook that comes late, after the id was created again, must not take the successor's slice. One
/// that was not told its lease may come while the successor has no process yet that would show.
fn life(lease: &Lease, is_told: bool) -> Option<String> {
    lease::container_lives(lease).or_else(|| {
        if is_told {
            None
        } else {
            lease::is_made_by_others(lease)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Result<Arguments> {
        parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        let both = args(&["--lease", "a1", "--config", "/c"]).unwrap();
        assert_eq!(
            both,
            Arguments {
                lease: Some("a1".into()),
                config: Some("/c".into())
            }
        );
        assert_eq!(args(&[]).unwrap(), Arguments::default());
        assert!(
            args(&["--lease"])
                .unwrap_err()
                .line()
                .contains("has no value")
        );
        assert!(
            args(&["a1"])
                .unwrap_err()
                .line()
                .contains("unknown argument a1")
        );
    }

    #[test]
    fn a_state_is_bounded_and_has_to_be_one() {
        let line = |bytes: &[u8]| read_state(bytes).unwrap_err().line();
        assert!(line(b"").contains("it is empty"));
        assert!(line(&vec![b' '; MAX_STATE as usize + 1]).contains("more than 1048576 bytes"));
        assert!(line(b"[]").starts_with("read the container's state from standard input: "));
        let state =
            read_state(&br#"{"ociVersion":"1.0.2","id":"c","status":"stopped","bundle":"/b"}"#[..]);
        assert_eq!(state.unwrap().id, "c");
    }
}
