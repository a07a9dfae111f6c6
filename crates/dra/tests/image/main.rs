//! The image that `scripts/image` makes.

use std::process::Output;
use testkit::prelude::*;

/// Makes the image from programs in a folder of its own, so that only their content is the same.
fn image(dir: &Path, name: &str) -> PathBuf {
    let programs = Path::new(env!("CARGO_BIN_EXE_runmig-dra"));
    let folder = dir.join(format!("programs-{name}"));
    fs::create_dir(&folder).unwrap();
    for program in ["runmig-dra", "runmig-claim"] {
        let built = programs.with_file_name(program);
        fs::copy(&built, folder.join(program))
            .unwrap_or_else(|e| panic!("{}: {e}; cargo build --workspace", built.display()));
    }
    let file = dir.join(name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/image");
    let mut command = Command::new(script);
    ok(command.arg("--from").arg(&folder).arg(&file));
    file
}

fn ok(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

#[test]
fn image_is_reproducible() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["one.tar", "other.tar"].map(|name| image(dir.path(), name));
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap());
}

/// The image has every library that the program needs. The tests of Kubernetes run it by containerd and CRI-O.
#[test]
fn podman_loads_image() {
    let podman = Command::new("podman").arg("--version").output();
    if podman.is_err() || !nix::unistd::geteuid().is_root() {
        let required = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        assert!(!required("CI") && !required("RUNMIG_REQUIRE_ALL"));
        eprintln!("SKIPPED: podman is not there, or this is not root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = image(dir.path(), "image.tar");
    let podman = |arguments: &[&str]| {
        let mut command = Command::new("podman");
        command.arg("--root").arg(dir.path().join("root"));
        command.arg("--runroot").arg(dir.path().join("run"));
        command.args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs"]);
        ok(command.args(arguments))
    };
    podman(&["load", "--quiet", "--input", file.to_str().unwrap()]);
    let name = format!("localhost/runmig-dra:{}", env!("CARGO_PKG_VERSION"));
    let mounted = podman(&["image", "mount", &name]).stdout;
    let root = String::from_utf8(mounted).unwrap();
    // Only the image's libraries are there.
    let said =
        ok(Command::new("chroot").args([root.trim(), "/usr/local/bin/runmig-dra", "--help"]));
    podman(&["image", "umount", &name]);
    let said = said.stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("usage: runmig-dra"), "{said}");
}
