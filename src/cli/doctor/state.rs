//! The state directory: root's alone, with room, with records that can be read.

use super::finding::Finding;
use super::host::Host;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use runmig_lease::store::Store;
use runmig_lease::trust;
use std::path::Path;

/// Room for some thousand records.
const LEAST_BYTES: u64 = 16 << 20;
const LEAST_INODES: u64 = 1000;

pub fn findings(host: &Host) -> Vec<Finding> {
    let config = host.configured();
    let folder = &config.state_dir;
    if !folder.exists() {
        return vec![absent(folder)];
    }
    let mut findings = vec![owner(folder), room(folder), memory(folder)];
    if trust::folder(folder).is_err() {
        let text = "the state directory is not trusted, see state.folder";
        findings.push(Finding::skip("records", text));
        return findings;
    }
    match Store::existing(folder, config.lock_timeout) {
        Ok(Some(store)) => findings.extend(records(&store)),
        Ok(None) => findings.push(Finding::ok("records", "the ledger is empty")),
        Err(e) => findings.push(Finding::failed("records", &e)),
    }
    findings
}

/// The first create makes the folder.
fn absent(folder: &Path) -> Finding {
    match trust::room_for(folder) {
        Ok(()) => Finding::ok(
            "folder",
            format!(
                "{} does not exist yet; the first create makes it",
                folder.display()
            ),
        ),
        Err(e) => Finding::fail(
            "folder",
            format!("cannot make {}: {}", folder.display(), e.line()),
            "give the folders above it to root alone, or set state_dir",
        ),
    }
}

fn owner(folder: &Path) -> Finding {
    match trust::folder(folder) {
        Ok(()) => Finding::ok(
            "folder",
            format!("{} belongs to root alone", folder.display()),
        ),
        Err(e) => Finding::fail(
            "folder",
            format!("cannot trust {}: {}", folder.display(), e.line()),
            format!("chown root: {0} && chmod go-w {0}", folder.display()),
        ),
    }
}

/// The ledger lives for one boot, and creates wait for its writes.
fn memory(folder: &Path) -> Finding {
    match statfs(folder) {
        Ok(of) if of.filesystem_type() == TMPFS_MAGIC => Finding::ok(
            "tmpfs",
            format!("{} is in memory (tmpfs)", folder.display()),
        ),
        Ok(_) => Finding::warn(
            "tmpfs",
            format!(
                "{} is not in memory, so creates wait for a disk, and a reboot leaves records",
                folder.display()
            ),
            "set state_dir to a folder below /run, while no container has a lease",
        ),
        Err(e) => Finding::warn(
            "tmpfs",
            format!("cannot read the file system of {}: {e}", folder.display()),
            "mount it anew",
        ),
    }
}

fn room(folder: &Path) -> Finding {
    let of = match statvfs(folder) {
        Ok(of) => of,
        Err(e) => {
            let text = format!("cannot read the room of {}: {e}", folder.display());
            return Finding::warn("room", text, "mount the file system anew");
        }
    };
    let bytes = of.blocks_available() * of.fragment_size();
    let inodes = of.files_available();
    let mib = bytes >> 20;
    // Some file systems count no inodes.
    let few_inodes = of.files() > 0 && inodes < LEAST_INODES;
    if bytes < LEAST_BYTES || few_inodes {
        return Finding::fail(
            "room",
            format!(
                "the file system of {} has {mib} MiB and {inodes} inodes left",
                folder.display()
            ),
            "remove other files of this file system, or set state_dir to another",
        );
    }
    Finding::ok(
        "room",
        format!("{mib} MiB are left for {}", folder.display()),
    )
}

fn records(store: &Store) -> Vec<Finding> {
    let listing = match store.list() {
        Ok(listing) => listing,
        Err(e) => return vec![Finding::failed("records", &e)],
    };
    if listing.damaged.is_empty() {
        let text = format!("{} records are readable", listing.entries.len());
        return vec![Finding::ok("records", text)];
    }
    let one = |damaged: &runmig_lease::store::Damaged| {
        let id = damaged.id().unwrap_or("?");
        Finding::fail(
            "records",
            format!(
                "cannot read {}: {}",
                damaged.file.display(),
                damaged.why.line()
            ),
            format!("migctl release {id}, after its container has ended"),
        )
    };
    listing.damaged.iter().map(one).collect()
}
