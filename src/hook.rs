//! The poststop hook: reads the OCI state, gives the slice back, exits 0 whatever happens, since
//! low-level runtimes stop at a hook that fails and throw its output away. What went wrong is in the
//! log, and the lease stays on record for whoever comes next.

use crate::config::Config;
use crate::error::{self, Context, Error, Result};
use crate::lease::{self, Leases, Patience, Returned};
use crate::log;
use crate::store::{Lease, State};
use serde::Deserialize;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A state is a few hundred bytes, and the annotations of the container.
const MAX_STATE: u64 = 1 << 20;

#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    /// None in a hook that an administrator put into hooks.d: then the state says which.
    leases: Vec<String>,
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
             input and gives its GPU slices back [--lease ID]… [--config FILE]",
            env!("CARGO_PKG_VERSION")
        );
        return;
    }
    if let Err(e) = run(&args) {
        tracing::error!("poststop: {}", e.line());
        // A broken standard error is no reason to fail.
        let _ = writeln!(std::io::stderr(), "runmig-hook: {}", e.line());
    }
}

fn run(args: &[OsString]) -> Result<()> {
    // First, whatever is wrong: who writes the state is not to meet a broken pipe.
    let state = read_state(std::io::stdin().lock());
    let arguments = parse(args)?;
    let config = match &arguments.config {
        Some(file) => Config::read(file)?,
        None => Config::for_program(None)?,
    };
    let Some(leases) = Leases::existing(&config)? else {
        return Ok(());
    };
    log::start(&config);
    let state = state?;
    if arguments.leases.is_empty() {
        let of_it = of(&leases, &state)?;
        return error::all(of_it.iter().map(|lease| give_back(&leases, lease, false)));
    }
    let told = arguments.leases.iter();
    error::all(told.map(|id| give_back_told(&leases, id, &state)))
}

/// One that is named by its id: it may have gone, or be damaged.
fn give_back_told(leases: &Leases<'_>, id: &str, state: &OciState) -> Result<()> {
    match leases.store().get(id) {
        // A second run, or after somebody else gave it back.
        Ok(None) => Ok(()),
        Ok(Some(other)) if other.holder.key.id != state.id => Err(Error::new(format!(
            "the state is of container {}, the lease of container {}",
            state.id, other.holder.key.id
        ))),
        Ok(Some(lease)) => give_back(leases, &lease, true),
        // Its name still says what there is to give back.
        Err(e) => {
            tracing::warn!(lease = id, "{}", e.line());
            leases.release_damaged_of(id, &state.bundle)
        }
    }
}

fn give_back(leases: &Leases<'_>, lease: &Lease, is_told: bool) -> Result<()> {
    let life = |lease: &Lease| life(lease, is_told);
    match leases.release_unless(&lease.id, Patience::default(), life)? {
        Returned::Yes => Ok(()),
        Returned::No(life) => Err(Error::new(format!("the container still runs: {life}"))),
    }
}

/// All that is read of what others hand us, without acting on it.
pub(crate) fn understand(args: &[OsString], input: impl Read) -> Result<(Vec<String>, String)> {
    let arguments = parse(args)?;
    Ok((arguments.leases, read_state(input)?.id))
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
            Some("--lease") => parsed.leases.push(value()?.to_string_lossy().into_owned()),
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

/// The leases of the container that the state is of.
fn of(leases: &Leases<'_>, state: &OciState) -> Result<Vec<Lease>> {
    let bundle = std::fs::canonicalize(&state.bundle).unwrap_or_else(|_| state.bundle.clone());
    let (mut of_it, _) = leases.store().list()?;
    of_it.retain(|l| is_of(l, &state.id, &bundle));
    if of_it.iter().any(|l| l.creator != of_it[0].creator) {
        return Err(Error::new(format!(
            "container {} has leases of more than one create",
            state.id
        ))
        .hint("migctl gc gives back those whose container is gone"));
    }
    Ok(of_it)
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
                leases: vec!["a1".into()],
                config: Some("/c".into())
            }
        );
        let two = args(&["--lease", "a1", "--lease", "b2"]).unwrap();
        assert_eq!(two.leases, ["a1", "b2"]);
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
