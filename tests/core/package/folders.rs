//! `scripts/package` in two folders.

use super::run;
use testkit::packages::{self, PROGRAMS};
use testkit::prelude::*;

/// Packs small programs, since packing is what differs here: zig and cargo build the programs.
#[test]
fn two_folders_give_same_bytes() {
    // The tools are there if the packages are.
    if packages::folder().is_none() {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let programs = work.path().join("programs");
    fs::create_dir(&programs).unwrap();
    for name in PROGRAMS {
        fs::copy("/bin/true", programs.join(name)).unwrap();
    }
    // This one writes its manual pages.
    let migctl = "#!/bin/sh\n[ \"$1\" != man ] || echo page >\"$2/migctl.1\"\n";
    testkit::runtimes::program(&programs.join("migctl"), migctl);
    let sums = ["a", "another/folder"].map(|name| pack(&work.path().join(name), &programs));
    assert_eq!(sums[0].lines().count(), 4, "{}", sums[0]);
    assert_eq!(sums[0], sums[1]);
}

/// Returns the checksums of the packages that a copy of the sources makes.
fn pack(copy: &Path, programs: &Path) -> String {
    fs::create_dir_all(copy).unwrap();
    let unpack = "tar -C $0 --exclude=target --exclude=.git -c . | tar -C $1 -x";
    run(unpack, &[testkit::repository(), copy]);
    let mut package = Command::new(copy.join("scripts/package"));
    package.arg("--from").arg(programs);
    said(package.env("SOURCE_DATE_EPOCH", "1764000000")).ok();
    fs::read_to_string(copy.join("target/package/SHA256SUMS")).unwrap()
}
