//! `migctl completion`: prints the completion code for a shell.
//!
//! The code asks migctl at each TAB, by an environment variable, so that it also completes the ids and profiles of the
//! moment. A suggestion must not fail, wait for the driver or change a file: it is empty where something cannot be read.

use super::filter::namespace;
use super::list::holder_name;
use super::output;
use clap::Command;
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, CompletionCandidate, Shell};
use runmig_lease::config::Config;
use runmig_lease::error::{Context, Result, printable};
use runmig_lease::gpu::geometry::Cache;
use runmig_lease::store::{Claim, Container, Entry, Store};
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// The variable by which the code in the shell asks migctl.
const VARIABLE: &str = "MIGCTL_COMPLETE";

/// The part of `--help` that says where the code belongs.
pub const HELP: &str = "\
In bash:  source <(migctl completion bash)
In zsh:   source <(migctl completion zsh)
In fish:  migctl completion fish | source

Put the line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish. Packages install it.";

/// Prints the code for one shell.
pub fn run(shell: Shell) -> Result<i32> {
    let name = shell.to_string();
    let what = || format!("write the completion of {name}");
    let shells = Shells::builtins();
    let writer = { shells.completer(&name) }.ok_or("clap does not know it");
    let mut code = Vec::new();
    { writer.context(what)? }
        .write_registration(VARIABLE, "migctl", "migctl", "migctl", &mut code)
        .context(what)?;
    output::line(String::from_utf8_lossy(&code).trim());
    Ok(0)
}

/// Answers a shell that asks for completions, and ends the process. Returns if none asks.
pub fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Returns the ids of the containers and leases on record, and the names of claims.
pub fn holders(begun: &OsStr) -> Vec<CompletionCandidate> {
    suggest(begun, entries().iter().flat_map(names).collect())
}

/// Returns the Kubernetes namespaces of the leases on record.
pub fn namespaces(begun: &OsStr) -> Vec<CompletionCandidate> {
    let named = |entry: &Entry| Some((namespace(entry.lease()?)?.to_owned(), String::new()));
    suggest(begun, entries().iter().filter_map(named).collect())
}

/// Returns the profiles that the driver last told.
pub fn profiles(begun: &OsStr) -> Vec<CompletionCandidate> {
    let names = Config::for_program(None).map(|config| Cache::last_names(&config.state_dir));
    let names = names.unwrap_or_default().into_iter();
    suggest(begun, names.map(|name| (name, String::new())).collect())
}

fn entries() -> Vec<Entry> {
    let listing = Config::for_program(None).ok().and_then(|config| {
        let store = Store::existing(&config.state_dir, config.lock_timeout).ok()??;
        store.list().ok()
    });
    listing.map(|listing| listing.entries).unwrap_or_default()
}

/// Returns the ids of an entry, each with a help.
fn names(entry: &Entry) -> Vec<(String, String)> {
    let what = entry.shown().name;
    let Some(lease) = entry.lease() else {
        return vec![(entry.id().to_owned(), what.to_owned())];
    };
    let holder = holder_name(lease);
    let of_container = || lease.holder.name().to_owned();
    let mut names = vec![{ lease.claim() }.map_or_else(of_container, Claim::full_name)];
    names.extend(lease.container().and_then(Container::full_name));
    let help = format!("the lease of {holder}, {what}");
    let of_holder = { names.into_iter() }.map(|name| (name, format!("{holder}, {what}")));
    of_holder.chain([(entry.id().to_owned(), help)]).collect()
}

/// Returns the names that begin so. A name with other characters would be part of a command in the shell.
fn suggest(begun: &OsStr, named: BTreeSet<(String, String)>) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._+-/:".contains(c);
    { named.into_iter() }
        .filter(|(name, _)| name.starts_with(&*begun) && name.chars().all(is_plain))
        .map(|(name, help)| {
            let help = (!help.is_empty()).then(|| printable(&help).into());
            CompletionCandidate::new(name).help(help)
        })
        .collect()
}
