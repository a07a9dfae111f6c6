//! The state directory: root's alone, with room, with records that can be read.

use super::check::Check;
use super::finding::Finding;
use super::host::Host;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use runmig_lease::process;
use runmig_lease::store::{Damaged, Listing, Store};
use runmig_lease::trust;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    Check::new(
        "state.folder",
        "the state directory and the folders above it belong to root alone",
        "chown root and chmod go-w, or set state_dir",
    ),
    Check::new(
        "state.tmpfs",
        "the state directory is in memory",
        "set state_dir to a folder below /run",
    ),
    Check::new(
        "state.space",
        "its file system has 16 MiB left",
        "remove other files of the file system",
    ),
    Check::new(
        "state.inodes",
        "its file system has 1000 inodes left",
        "remove other files of the file system",
    ),
    Check::new(
        "state.records",
        "every record is readable",
        "migctl release ID",
    ),
    Check::new(
        "state.earlier-boot",
        "no record is of an earlier boot",
        "migctl gc",
    ),
    Check::new(
        "state.locks",
        "no process holds a lock for more than 30 s",
        "let the process end, or end it",
    ),
    Check::new(
        "state.unfinished",
        "no write was left unfinished by a kill",
        "remove the file",
    ),
];

/// Room for some thousand records.
const LEAST_BYTES: u64 = 16 << 20;
const LEAST_INODES: u64 = 1000;
/// A create holds a lock for milliseconds, and a driver that is slow for seconds.
const LONG: Duration = Duration::from_secs(30);

pub fn findings(host: &Host) -> Vec<Finding> {
    let config = host.configured();
    let folder = &config.state_dir;
    if !folder.exists() {
        let mut findings = vec![absent(folder)];
        let why = "the state directory does not exist yet";
        findings.extend(Finding::skip_all(&CHECKS[1..], why));
        return findings;
    }
    let mut findings = vec![owner(folder), memory(folder)];
    findings.extend(room(folder));
    let ledger = &CHECKS[4..];
    if trust::folder(folder).is_err() {
        let why = "the state directory is not trusted, see state.folder";
        findings.extend(Finding::skip_all(ledger, why));
        return findings;
    }
    match Store::existing(folder, config.lock_timeout) {
        Ok(Some(store)) => {
            findings.extend(records(host, &store));
            findings.extend(locks(&store));
            findings.extend(unfinished(&store));
        }
        Ok(None) => findings.extend(Finding::skip_all(ledger, "there is no ledger yet")),
        Err(e) => {
            findings.push(Finding::failed("state.records", &e));
            let why = "the ledger cannot be opened, see state.records";
            findings.extend(Finding::skip_all(&ledger[1..], why));
        }
    }
    findings
}

/// The first create makes the folder.
fn absent(folder: &Path) -> Finding {
    match trust::room_for(folder) {
        Ok(()) => Finding::ok(
            "state.folder",
            format!(
                "{} does not exist yet; the first create makes it",
                folder.display()
            ),
        ),
        Err(e) => Finding::fail(
            "state.folder",
            format!("cannot make {}: {}", folder.display(), e.line()),
            "give the folders above it to root alone, or set state_dir",
        ),
    }
}

fn owner(folder: &Path) -> Finding {
    match trust::folder(folder) {
        Ok(()) => Finding::ok(
            "state.folder",
            format!("{} belongs to root alone", folder.display()),
        ),
        Err(e) => Finding::fail(
            "state.folder",
            format!("cannot trust {}: {}", folder.display(), e.line()),
            format!("chown root: {0} && chmod go-w {0}", folder.display()),
        ),
    }
}

/// The ledger lives for one boot, and creates wait for its writes.
fn memory(folder: &Path) -> Finding {
    match statfs(folder) {
        Ok(of) if of.filesystem_type() == TMPFS_MAGIC => Finding::ok(
            "state.tmpfs",
            format!("{} is in memory (tmpfs)", folder.display()),
        ),
        Ok(_) => Finding::warn(
            "state.tmpfs",
            format!(
                "{} is not in memory, so creates wait for a disk, and a reboot leaves records",
                folder.display()
            ),
            "set state_dir to a folder below /run, while no container has a lease",
        ),
        Err(e) => Finding::warn(
            "state.tmpfs",
            format!("cannot read the file system of {}: {e}", folder.display()),
            "mount it anew",
        ),
    }
}

fn room(folder: &Path) -> Vec<Finding> {
    let of = match statvfs(folder) {
        Ok(of) => of,
        Err(e) => {
            let text = format!("cannot read the room of {}: {e}", folder.display());
            return Finding::skip_all(&CHECKS[2..4], &text);
        }
    };
    let bytes = of.blocks_available() * of.fragment_size();
    // Some file systems count no inodes.
    let inodes = (of.files() > 0).then(|| of.files_available());
    let left = |id, is_enough: bool, left: String| {
        let text = format!("{left} are left for {}", folder.display());
        match is_enough {
            true => Finding::ok(id, text),
            false => Finding::fail(
                id,
                format!("only {text}"),
                "remove other files of this file system, or set state_dir to another",
            ),
        }
    };
    vec![
        left(
            "state.space",
            bytes >= LEAST_BYTES,
            format!("{} MiB", bytes >> 20),
        ),
        match inodes {
            Some(inodes) => left(
                "state.inodes",
                inodes >= LEAST_INODES,
                format!("{inodes} inodes"),
            ),
            None => Finding::ok("state.inodes", "the file system has no limit on inodes"),
        },
    ]
}

fn records(host: &Host, store: &Store) -> Vec<Finding> {
    let listing = match store.list() {
        Ok(listing) => listing,
        Err(e) => {
            let skipped = "the ledger cannot be listed, see state.records";
            return vec![
                Finding::failed("state.records", &e),
                Finding::skip("state.earlier-boot", skipped),
            ];
        }
    };
    let one = |damaged: &Damaged| {
        let id = damaged.id().unwrap_or("?");
        Finding::fail(
            "state.records",
            format!(
                "cannot read {}: {}",
                damaged.file.display(),
                damaged.why.line()
            ),
            format!("migctl release {id}, after its container has ended"),
        )
    };
    let mut findings: Vec<Finding> = listing.damaged.iter().map(one).collect();
    if findings.is_empty() {
        let text = format!("{} records are readable", listing.entries.len());
        findings.push(Finding::ok("state.records", text));
    }
    findings.push(earlier(host, &listing));
    findings
}

/// A state directory outside of memory keeps records over a reboot, which the instances do not survive.
fn earlier(host: &Host, listing: &Listing) -> Finding {
    const ID: &str = "state.earlier-boot";
    let Ok(boot) = process::boot_id(&host.driver_root()) else {
        return Finding::skip(ID, "the boot id cannot be read, see clock.boot");
    };
    let earlier = { listing.entries.iter() }.filter(|entry| *entry.boot_id() != boot);
    match earlier.count() {
        0 => Finding::ok(ID, "no record is of an earlier boot"),
        n => Finding::warn(
            ID,
            format!("{n} records are of an earlier boot, whose instances are gone"),
            "migctl gc",
        ),
    }
}

fn locks(store: &Store) -> Vec<Finding> {
    const ID: &str = "state.locks";
    let held = match store.held_locks() {
        Ok(held) => held,
        Err(e) => return vec![Finding::skip(ID, e.line())],
    };
    let long = held.iter().filter(|held| held.age > LONG);
    let long: Vec<Finding> = long
        .map(|held| {
            Finding::warn(
                ID,
                format!(
                    "{} has been held for {} s by {}, so creates wait for it",
                    held.file.display(),
                    held.age.as_secs(),
                    held.holder
                ),
                format!("let process {} end; kill {0} if it hangs", held.pid),
            )
        })
        .collect();
    match (long.is_empty(), held.as_slice()) {
        (false, _) => long,
        (true, []) => vec![Finding::ok(ID, "no process holds a lock")],
        (true, held) => {
            let holders: Vec<&str> = held.iter().map(|held| held.holder.as_str()).collect();
            let text = format!("locks are held briefly by {}", holders.join(", "));
            vec![Finding::ok(ID, text)]
        }
    }
}

/// Files of writers that a kill ended. A create removes most of them.
fn unfinished(store: &Store) -> Vec<Finding> {
    const ID: &str = "state.unfinished";
    let one = |file: &PathBuf| {
        let file = file.display();
        let text = format!("{file} is unfinished: its writer was killed");
        Finding::warn(ID, text, format!("rm {file}"))
    };
    let findings: Vec<Finding> = store.unfinished(LONG).iter().map(one).collect();
    match findings.is_empty() {
        true => vec![Finding::ok(ID, "no file is unfinished")],
        false => findings,
    }
}
