//! Containers whose record no low-level runtime can keep: their slice could never be released,
//! since nobody could find out that they are gone.

use testkit::prelude::*;

/// Root and id of each call, and the line that it ends with.
fn calls(setup: &Setup) -> Vec<(PathBuf, String, String)> {
    let root = setup.root("a");
    let [to, back, file] = ["to", "back", "file"].map(|name| setup.path(name));
    symlink(&back, &to).unwrap();
    symlink(&to, &back).unwrap();
    std::fs::write(&file, "").unwrap();
    let long = |bytes: usize| "x".repeat(bytes);
    let mut calls = Vec::new();
    for bytes in [256, 257, 300, 1000, 4000, 5000] {
        let line = format!(
            "cannot create the container: its id has {bytes} bytes, and a file name 255 at most; \
             hint: use a shorter id"
        );
        calls.push((root.clone(), long(bytes), line));
    }
    let links = "Too many levels of symbolic links (os error 40)";
    for (root, why) in [
        (to.clone(), links),
        (to.join("below"), links),
        (back, links),
        (file.clone(), "Not a directory (os error 20)"),
        (file.join("below"), "Not a directory (os error 20)"),
    ] {
        let id = unique();
        let line = format!(
            "cannot look for container {id} below --root {}: {why}; hint: use a --root that is a \
             folder, or that can be made one",
            root.display()
        );
        calls.push((root, id, line));
    }
    // Not there yet, so nothing but the length of its name speaks against it.
    for root in [root.join(long(256)), setup.path("none").join(long(300))] {
        let bytes = root.file_name().unwrap().len();
        let id = unique();
        let line = format!(
            "cannot create container {id}: a part of --root has {bytes} bytes, and a file name 255 at \
             most; hint: use a shorter --root"
        );
        calls.push((root, id, line));
    }
    let deep: PathBuf = std::iter::repeat_n(long(250), 17).collect();
    let (id, root) = (unique(), setup.path("none").join(deep));
    let bytes = root.as_os_str().len() + id.len() + 64;
    let line = format!(
        "cannot create container {id}: the path of its record has {bytes} bytes, and a path 4095 at \
         most; hint: use a shorter --root"
    );
    calls.push((root, id, line));
    calls
}

/// Failure: the container's id or `--root` makes an impossible path: too long, a loop of links, a file in the way
#[test]
fn refuses_container_without_usable_record() {
    let setup = Setup::of(Low::Runc);
    let calls = calls(&setup);
    assert_eq!(calls.len(), 14, "as many as two GPUs have room for");
    let bundle = setup.asking("1g.10gb", "true");
    let before = (bundle.bytes(), bundle.names());
    let mut verbs = ["create", "run"].into_iter().cycle();
    for (root, id, line) in calls {
        let mut call = setup.plain(&setup.program("runmig"));
        call.arg("--root").arg(root).arg(verbs.next().unwrap());
        call.args(["--bundle", bundle.as_str(), &id]);
        assert_eq!(said(&mut call).stderr, format!("runmig: {line}\n"));
    }
    setup.nothing_is_left();
    assert_eq!((bundle.bytes(), bundle.names()), before);
}
