//! The values that migctl suggests: ids and namespaces on record, profiles of this node, handlers with a configuration.
//!
//! A suggestion must not fail, wait for the driver or change a file. It is empty where something cannot be read.

use crate::cli::filter::namespace;
use crate::cli::list::holder_name;
use clap_complete::CompletionCandidate;
use runmig_lease::config::{Config, DIRECTORY};
use runmig_lease::error::printable;
use runmig_lease::gpu::geometry::Cache;
use runmig_lease::store::{Entry, Store};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Returns the ids of the containers and leases on record, and the names of claims.
pub fn holders(begun: &OsStr) -> Vec<CompletionCandidate> {
    suggest(begun, entries().iter().flat_map(names).collect())
}

/// Returns the ids of the containers on record.
pub fn containers(begun: &OsStr) -> Vec<CompletionCandidate> {
    let named = |entry: &Entry| {
        let lease = entry.lease()?;
        Some((lease.container()?.key.id.clone(), holder_name(lease)))
    };
    suggest(begun, entries().iter().filter_map(named).collect())
}

/// Returns the Kubernetes namespaces of the leases on record.
pub fn namespaces(begun: &OsStr) -> Vec<CompletionCandidate> {
    let named = |entry: &Entry| Some((namespace(entry.lease()?)?.to_owned(), String::new()));
    suggest(begun, entries().iter().filter_map(named).collect())
}

fn entries() -> Vec<Entry> {
    let listing = config().and_then(|config| {
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
    let name = match (lease.claim(), lease.container()) {
        (Some(claim), _) => Some(claim.full_name()),
        (None, container) => container.map(|c| c.key.id.clone()),
    };
    let named = name.map(|name| (name, format!("{holder}, {what}")));
    { named.into_iter() }
        .chain([(
            entry.id().to_owned(),
            format!("the lease of {holder}, {what}"),
        )])
        .collect()
}

/// Returns the profiles that the driver last told.
pub fn profiles(begun: &OsStr) -> Vec<CompletionCandidate> {
    let names = config().map(|config| Cache::last_names(&config.state_dir));
    let names = names.unwrap_or_default().into_iter();
    suggest(begun, names.map(|name| (name, String::new())).collect())
}

/// Returns the handlers for which a configuration exists.
pub fn handlers(begun: &OsStr) -> Vec<CompletionCandidate> {
    let files = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let names = files.filter_map(|file| handler(&file.path()));
    suggest(begun, names.collect())
}

fn handler(file: &Path) -> Option<(String, String)> {
    let is_toml = file
        .extension()
        .is_some_and(|extension| extension == "toml");
    let name = is_toml.then(|| file.file_stem()?.to_str())??;
    let handler = match name {
        "config" => "runmig".to_owned(),
        name => format!("runmig-{name}"),
    };
    Some((handler, format!("reads {}", file.display())))
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

/// Returns the configuration that the words of the command name.
fn config() -> Option<Config> {
    match named(std::env::args_os().collect()) {
        Some(file) => Config::read(Path::new(&file)).ok(),
        None => Config::for_program(None).ok(),
    }
}

/// Returns the value of `--config` among words.
fn named(words: Vec<OsString>) -> Option<OsString> {
    let next = words.iter().skip(1).map(Some).chain([None]);
    { words.iter().zip(next) }.find_map(|(word, next)| match word.to_str()? {
        "--config" => next.cloned(),
        word => word.strip_prefix("--config=").map(OsString::from),
    })
}
