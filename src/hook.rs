//! The poststop hook: reads the OCI state and releases the slice. It exits with 0 in every case, since
//! low-level runtimes stop at a hook that fails, and discard its output. A failure is in the log, and the
//! lease stays on record for the next call.
//!
//! With `--limit` it is a createRuntime hook: it limits the container's memory in the driver, and exits with 1 if it
//! cannot, so that the create fails.

pub mod claim;

use crate::{bundles, log};
use runmig_lease::config::Config;
use runmig_lease::counters::Actor;
use runmig_lease::error::{self, Context, Error, Result, printable};
use runmig_lease::model::LeaseId;
use runmig_lease::store::{Container, Held, Lease, LeaseState};
use runmig_lease::{BundleAccount, Leases, Liveness, Patience, Returned, files, process};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;

/// Longest OCI state in bytes. A state is a few hundred bytes and the container's annotations. They can fill
/// the longest `config.json`, and Go escapes each `<`, `>` and `&` as six bytes. The hook keeps none of it in
/// memory.
const MAX_STATE: u64 = (6 * 16 + 1) << 20;

#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    /// Empty in a hook that an administrator put into hooks.d. Then the OCI state names the container.
    leases: Vec<LeaseId>,
    config: Option<PathBuf>,
    /// Says whether the hook limits the container's memory instead.
    limit: bool,
}

/// The fields of the OCI state that the hooks need. Low-level runtimes differ in the rest.
#[derive(Debug, Deserialize)]
struct OciState<Annotations = IgnoredAny> {
    id: String,
    bundle: PathBuf,
    /// The container's first process, which a release does not need.
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    annotations: Annotations,
}

impl<Annotations> OciState<Annotations> {
    fn pid(&self) -> Option<i32> {
        let pid = i32::try_from(self.pid.as_i64()?).ok();
        pid.filter(|pid| *pid > 0)
    }
}

const HELP: &str = "a hook of OCI runtimes; reads the container's state on standard input\n\
    [--lease ID]… [--config FILE]       poststop: releases its slices, shares and GPUs\n\
    --limit --lease ID [--config FILE]  createRuntime: limits the memory of its share in the driver";

pub fn main() {
    let limits = std::env::args_os().any(|arg| arg == "--limit");
    let stage = if limits { "createRuntime" } else { "poststop" };
    let succeeded = succeeds("runmig-hook", HELP, stage, run);
    if limits && !succeeded {
        std::process::exit(1);
    }
}

/// Runs a hook with the arguments of this process, and reports its failure. `stage` begins the line of the log.
fn succeeds(name: &str, help: &str, stage: &str, run: fn(&[OsString]) -> Result<()>) -> bool {
    process::survive_file_limit();
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.iter().any(|a| a == "--help" || a == "--version") {
        let _ = writeln!(
            std::io::stdout(),
            "{name} {}: {help}",
            env!("CARGO_PKG_VERSION")
        );
        return true;
    }
    let ran = run(&args);
    if let Err(e) = &ran {
        tracing::error!("{stage}: {}", e.line());
        // A broken standard error is no reason to fail.
        let _ = writeln!(std::io::stderr(), "{name}: {}", e.line());
    }
    ran.is_ok()
}

fn run(args: &[OsString]) -> Result<()> {
    // The hook reads the state before it can fail, so that the low-level runtime never writes to a broken
    // pipe.
    let state = read_state(std::io::stdin().lock());
    let arguments = parse(args)?;
    let config = Config::named(arguments.config.as_deref())?;
    if arguments.limit {
        return limit(&config, &arguments.leases, &state?);
    }
    if arguments.leases.is_empty() {
        let Some(leases) = bundles::existing(&config, Actor::Hook)? else {
            return Ok(());
        };
        log::start(&config);
        let of_it = of(&leases, &state?)?;
        return error::all(of_it.iter().map(|lease| release(&leases, lease, false)));
    }
    release_all(&config, &arguments.leases, state)
}

/// Releases the leases that the arguments name. Each of them had a ledger once.
fn release_all(config: &Config, ids: &[LeaseId], state: Result<OciState>) -> Result<()> {
    let ledger = bundles::existing_or_new(config, Actor::Hook);
    if ledger.is_ok() {
        log::start(config);
    }
    let state = state?;
    let told = || bundles::account_of(&state.bundle, &ids[0]);
    let dir = config.state_dir.display();
    let (leases, was_there) = match ledger {
        Ok(ledger) => ledger,
        Err(e) => {
            let (reason, told) = (e.reason(), told());
            let each = |id: &LeaseId| {
                let why = Error::new(format!("there is no ledger in {dir}: {reason}"));
                Err(told.stays(id, &state.id, why))
            };
            let restored = bundles::restore_without_ledger(&state.bundle, &ids[0]);
            return error::all(ids.iter().map(each).chain([restored]));
        }
    };
    if !was_there {
        warn(format!(
            "no ledger in {dir}: it was removed or unmounted under container {}",
            state.id
        ));
    }
    if let Some(why) = leases.store().damage()? {
        warn(format!(
            "the ledger in {dir} is damaged ({}): its slice is released by what its bundle tells",
            why.reason()
        ));
        let told = told();
        let end = |id: &LeaseId| match leases.end_unrecorded(&told, id, &state.id, &state.bundle)? {
            true => Ok(()),
            // A repair came in between.
            false => release_named(&leases, id, &state, Some(&told)),
        };
        return error::all(ids.iter().map(end).collect::<Vec<_>>());
    }
    let is_missing = |id: &LeaseId| matches!(leases.store().get(id), Ok(None));
    let lost = (!was_there || ids.iter().any(is_missing))
        .then(told)
        .filter(|told| !was_there || !leases.has_struck_off(told));
    let released = ids
        .iter()
        .map(|id| release_named(&leases, id, &state, lost.as_ref()));
    // The hook releases every lease before it returns an error.
    error::all(released.collect::<Vec<_>>())
}

/// Releases a lease by its id. The lease may be gone, or lost with its ledger.
fn release_named(
    leases: &Leases<'_>,
    id: &LeaseId,
    state: &OciState,
    lost: Option<&BundleAccount>,
) -> Result<()> {
    let Some(held) = leases.store().get(id)? else {
        // Without a loss the hook runs for a second time, or another call released the lease.
        return lost.map_or(Ok(()), |told| release_lost(leases, told, id, state));
    };
    let owner = held.lease.holder.name();
    if owner != state.id {
        let why = format!(
            "the state is of container {}, the lease of container {owner}",
            state.id
        );
        return Err(Error::new(why));
    }
    release(leases, &held, true)
}

fn release_lost(
    leases: &Leases<'_>,
    told: &BundleAccount,
    id: &LeaseId,
    state: &OciState,
) -> Result<()> {
    let recovered = leases.recover(told, id, &state.id);
    if let Ok(Some(lease)) = recovered {
        warn(format!(
            "lease {id} was not in the ledger: its slice is released by what its bundle tells"
        ));
        return release(leases, &lease, true);
    }
    let restored = leases.restore(&state.bundle, id);
    error::all([recovered.map(drop), restored])
}

/// Writes a warning to the log and to standard error. A broken standard error is no reason to fail.
fn warn(line: String) {
    tracing::warn!("poststop: {line}");
    let _ = writeln!(std::io::stderr(), "runmig-hook: {line}");
}

/// Releases a lease unless its container lives: a late hook, after another create of the same id, must not take that
/// create's slice. A hook without `--lease` may come while the new container has no visible process yet.
fn release(leases: &Leases<'_>, held: &Held, is_told: bool) -> Result<()> {
    let life = |lease: &Lease| {
        let sign = Liveness::here().container_lives(lease);
        match is_told {
            true => sign,
            false => sign.or_else(|| leases.is_made_by_others(lease)),
        }
    };
    match leases.release_unless(held, Patience::default(), life)? {
        Returned::Yes => Ok(()),
        Returned::No(life) => Err(Error::new(format!("the container still runs: {life}"))),
    }
}

/// Returns the lease ids of the arguments and the container's id of the state. It parses all input of the
/// hook without acting on it.
pub(crate) fn understand(args: &[OsString], input: impl Read) -> Result<(Vec<LeaseId>, String)> {
    let arguments = parse(args)?;
    let state: OciState = read_state(input)?;
    Ok((arguments.leases, state.id))
}

fn parse(args: &[OsString]) -> Result<Arguments> {
    let mut parsed = Arguments::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || {
            let missing = || Error::new(format!("argument {} has no value", arg.display()));
            rest.next().cloned().ok_or_else(missing)
        };
        match arg.to_str() {
            Some("--lease") => parsed.leases.push(LeaseId::new(value()?.to_string_lossy())),
            Some("--config") => parsed.config = Some(value()?.into()),
            Some("--limit") => parsed.limit = true,
            // It keeps the request for a create over this edit.
            Some("--asked") => drop(value()?),
            _ => return Err(Error::new(format!("argument {} is unknown", arg.display()))),
        }
    }
    Ok(parsed)
}

/// Reads the state to its end or to the limit, also after an error. crun dies of SIGPIPE when its hook ends
/// before crun has written all.
fn read_state<T: DeserializeOwned>(input: impl Read) -> Result<T> {
    let what = || "read the container's state from standard input";
    let mut input = BufReader::new(files::limited(input, MAX_STATE));
    let state = serde_json::from_reader(&mut input).context(what);
    std::io::copy(&mut input, &mut std::io::sink()).context(what)?;
    if input.get_ref().is_untouched() {
        return Err(Error::new(format!("cannot {}: it is empty", what())));
    }
    state
}

/// Returns the leases of the container in the state.
fn of(leases: &Leases<'_>, state: &OciState) -> Result<Vec<Held>> {
    let bundle = std::fs::canonicalize(&state.bundle).unwrap_or_else(|_| state.bundle.clone());
    let is_of_it = |c: &Container| c.key.id == state.id && c.bundle == bundle;
    let is_its = |held: &&Held| {
        let lease = &held.lease;
        lease.state != LeaseState::Releasing && lease.container().is_some_and(is_of_it)
    };
    let listing = leases.store().list()?;
    let its: Vec<Held> = listing.held().filter(is_its).cloned().collect();
    if its.iter().any(|h| h.lease.creator != its[0].lease.creator) {
        return Err(Error::new(format!(
            "container {} has leases of more than one create",
            state.id
        ))
        .hint("run migctl gc to release those whose container is gone"));
    }
    Ok(its)
}

/// Limits the memory of the container in the state to the share of its lease, before any process of the image runs.
fn limit(config: &Config, leases: &[LeaseId], state: &OciState) -> Result<()> {
    let what = || format!("limit the GPU memory of container {}", printable(&state.id));
    let [lease] = leases else {
        return Err(Error::new("--limit needs one --lease ID")).context(what);
    };
    let Some(ledger) = bundles::existing(config, Actor::Hook)? else {
        let dir = config.state_dir.display();
        let why = Error::new(format!("there is no ledger in {dir}"));
        return Err(why.hint("create the container again: its lease is gone")).context(what);
    };
    log::start(config);
    match state.pid() {
        Some(pid) => ledger.limit_memory(lease, &state.id, pid),
        None => Err(Error::new("the container's state has no process")).context(what),
    }
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
                leases: vec![LeaseId::new("a1")],
                config: Some("/c".into()),
                limit: false,
            }
        );
        assert!(args(&["--limit", "--lease", "a1"]).unwrap().limit);
        let two = args(&["--lease", "a1", "--lease", "b2"]).unwrap();
        assert_eq!(two.leases, ["a1", "b2"].map(LeaseId::new));
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
                .contains("argument a1 is unknown")
        );
    }

    #[test]
    fn refuses_large_and_foreign_states() {
        let line = |bytes: &[u8]| read_state::<OciState>(bytes).unwrap_err().line();
        assert!(line(b"").contains("it is empty"));
        let endless = read_state::<OciState>(std::io::repeat(0))
            .unwrap_err()
            .line();
        assert!(endless.contains("longer than 101711872 bytes"), "{endless}");
        assert!(line(b"[]").starts_with("cannot read the container's state from standard input: "));
        let state: Result<OciState> =
            read_state(&br#"{"ociVersion":"1.0.2","id":"c","status":"stopped","bundle":"/b"}"#[..]);
        assert_eq!(state.unwrap().id, "c");
    }
}
