//! Paths that are no text, which the ledger has no way to write down.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use testkit::prelude::*;

/// Ends in a byte that UTF-8 does not have.
fn odd(path: &Path) -> PathBuf {
    let bytes = [path.as_os_str().as_bytes(), b"\xff"].concat();
    PathBuf::from(OsStr::from_bytes(&bytes))
}

/// The bundle under an odd name.
fn renamed(bundle: &Bundle) -> Bundle {
    let path = odd(&bundle.path);
    std::fs::rename(&bundle.path, &path).unwrap();
    Bundle { path }
}

fn refused(setup: &Setup, root: &Path, bundle: &Bundle, named: &Path) {
    let before = (bundle.bytes(), bundle.names());
    let mut create = setup.plain(&setup.program("runmig"));
    create.arg("--root").arg(root).arg("create");
    create.arg("--bundle").arg(&bundle.path).arg(unique());
    assert_eq!(
        said(&mut create).refused(),
        format!("runmig: path {named:?} is not UTF-8; hint: use a path that is valid UTF-8")
    );
    assert_eq!((bundle.bytes(), bundle.names()), before);
    setup.nothing_is_left();
}

/// Failure: the path of a bundle or root is not UTF-8, which no record can hold
#[test]
fn refuses_container_with_slice() {
    let setup = Setup::of(Low::Runc);
    let bundle = renamed(&setup.asking("1g.10gb", "true"));
    refused(&setup, &setup.root("a"), &bundle, &bundle.path);
    let bundle = setup.asking("1g.10gb", "true");
    let root = odd(&setup.root("a"));
    refused(&setup, &root, &bundle, &root);
}

#[test]
fn passes_others_on_unchanged() {
    let setup = Setup::of(Low::Runc);
    let bundle = renamed(&setup.bundle("true"));
    let before = bundle.bytes();
    let (front, saw) = (setup.path("runc"), setup.path("saw"));
    script(&front, &format!("printf '%s\\n' \"$@\" >{}", saw.display()));
    setup.put_before(&front);
    let root = odd(&setup.root("a"));
    let (root, path) = (root.as_os_str(), bundle.path.as_os_str());
    let [verb, id] = ["create", "c"].map(OsStr::new);
    let arguments = ["--root".as_ref(), root, verb, "--bundle".as_ref(), path, id];
    said(setup.plain(&setup.program("runmig")).args(arguments)).ok();
    let given = arguments.map(OsStr::as_bytes).join(&b'\n');
    assert_eq!(std::fs::read(saw).unwrap().trim_ascii_end(), given);
    assert_eq!(bundle.bytes(), before);
}
