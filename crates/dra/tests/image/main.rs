//! The image that `scripts/image` makes.

use testkit::prelude::*;

/// Makes the image from programs in a folder of its own, so that only their content is the same.
fn image(dir: &Path, name: &str) -> PathBuf {
    let folder = dir.join(format!("programs-{name}"));
    fs::create_dir(&folder).unwrap();
    for name in ["runmig-dra", "runmig-claim"] {
        fs::copy(program(name), folder.join(name)).unwrap();
    }
    let file = dir.join(name);
    let script = repository().join("scripts/image");
    let mut command = Command::new(script);
    said(command.arg("--from").arg(&folder).arg(&file)).ok();
    file
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
        return skip("podman is not there, or this is not root");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = image(dir.path(), "image.tar");
    let podman = |arguments: &[&str]| {
        let mut command = Command::new("podman");
        command.arg("--root").arg(dir.path().join("root"));
        command.arg("--runroot").arg(dir.path().join("run"));
        command.args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs"]);
        said(command.args(arguments)).ok().stdout
    };
    podman(&["load", "--quiet", "--input", file.to_str().unwrap()]);
    let name = format!("localhost/runmig-dra:{}", env!("CARGO_PKG_VERSION"));
    let root = podman(&["image", "mount", &name]);
    // Only the image's libraries are there.
    let mut chroot = Command::new("chroot");
    chroot.args([root.trim(), "/usr/local/bin/runmig-dra", "--help"]);
    let help = said(&mut chroot).ok().stdout;
    podman(&["image", "umount", &name]);
    has(&help, "usage: runmig-dra");
}
