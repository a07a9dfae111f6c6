//! The packages that `scripts/package` made, and a package of an earlier version to upgrade from.

use crate::prelude::*;

pub const PROGRAMS: [&str; 5] = [
    "migctl",
    "runmig",
    "runmig-hook",
    "runmig-request-wants-runtime-runmig",
    "runmig-slice",
];
/// Additional line in the configuration of the earlier version.
pub const EARLIER_LINE: &str = "# The defaults of an earlier version.\n";

/// Returns the folder of the packages, which `scripts/test` has made anew.
pub fn folder() -> Option<PathBuf> {
    let made = crate::repository().join("target/package");
    if made.join("SHA256SUMS").exists() {
        return Some(made);
    }
    super::skip("no packages in target/package: scripts/package");
    None
}

/// Returns the one package with an ending.
pub fn package(ending: &str) -> Option<PathBuf> {
    let files = fs::read_dir(folder()?).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    files.find(|file| file.to_str().unwrap().ends_with(ending))
}

/// Repacks a .deb as version 0.0.1: its programs have other bytes at their end, its configuration one line more.
pub fn earlier_deb(deb: &Path, to: &Path) {
    let work = tempfile::tempdir().unwrap();
    let root = work.path().join("root");
    said(Command::new("dpkg-deb").arg("-R").arg(deb).arg(&root)).ok();
    let control = root.join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    let (before, after) = text.split_once("Version: ").expect("a version");
    let after = after.split_once('\n').expect("a line").1;
    fs::write(&control, format!("{before}Version: 0.0.1-1\n{after}")).unwrap();
    change(&root);
    let mut pack = Command::new("dpkg-deb");
    said(pack.args(["-Znone", "-b"]).arg(&root).arg(to)).ok();
}

/// Makes the files below a root those of the earlier version.
pub fn change(root: &Path) {
    for name in PROGRAMS {
        append(&root.join("usr/bin").join(name), "earlier");
    }
    append(&root.join("etc/runmig/config.toml"), EARLIER_LINE);
}

/// Asserts that two listings have the same lines.
#[track_caller]
pub fn same_files(before: &str, after: &str) {
    let only = |one: &str, other: &str| -> Vec<String> {
        let other: BTreeSet<&str> = other.lines().collect();
        let only = one.lines().filter(|line| !other.contains(line));
        only.map(str::to_owned).collect()
    };
    let (new, gone) = (only(after, before), only(before, after));
    let are_same = new.is_empty() && gone.is_empty();
    assert!(are_same, "new: {new:#?}, gone: {gone:#?}");
}

fn append(file: &Path, text: &str) {
    let mut file = fs::File::options().append(true).open(file).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
