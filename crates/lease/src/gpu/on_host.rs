//! The device nodes of the host, where those and no others are used.

use crate::error::{Error, Result};
use crate::model::DeviceNode;
use crate::paths::inside;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Whether the host has a node below the driver root: a character device with its numbers.
pub fn exists(root: &Path, node: &DeviceNode) -> bool {
    fs::metadata(inside(root, &node.path)).is_ok_and(|meta| {
        let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
        meta.file_type().is_char_device() && (major, minor) == (node.major, node.minor)
    })
}

/// In a user namespace runc binds the host's nodes instead of making them, and takes over silently
/// whatever it finds: so they must be there, with these numbers, open to whom they should be.
pub fn check(nodes: &[DeviceNode]) -> Result<()> {
    nodes.iter().try_for_each(check_one)
}

fn check_one(node: &DeviceNode) -> Result<()> {
    let path = node.path.display();
    let wanted = format!("{}:{} mode {:04o}", node.major, node.minor, node.mode);
    let hint = format!(
        "in a user namespace the host's node is used; make it: nvidia-modprobe -u -c 0, or mknod -m {:04o} {path} c {} {}",
        node.mode, node.major, node.minor
    );
    let meta = fs::metadata(&node.path).map_err(|e| {
        Error::new(format!(
            "cannot find device node {path} ({wanted}) on the host"
        ))
        .hint(&hint)
        .caused_by(e)
    })?;
    let mode = meta.mode() & 0o777;
    let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    let found = if !meta.file_type().is_char_device() {
        "not a character device".to_owned()
    } else if (major, minor) != (node.major, node.minor) || mode & node.mode != node.mode {
        format!("{major}:{minor} mode {mode:04o}")
    } else {
        return Ok(());
    };
    Err(Error::new(format!(
        "device node {path} on the host is {found}, not {wanted}"
    ))
    .hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::device_nodes::node;

    #[test]
    fn finds_node_with_its_numbers() {
        let root = tempfile::TempDir::new().unwrap();
        let path = root.path().join("dev/nvidia-uvm-tools");
        let wanted = node("/dev/nvidia-uvm-tools", 507, 1, 0o666);
        assert!(!exists(root.path(), &wanted));
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(&path, "").unwrap();
        assert!(!exists(root.path(), &wanted));
        // A node that an earlier boot left, whose major is another driver's by now.
        for (major, expected) in [("506", false), ("507", true)] {
            fs::remove_file(&path).unwrap();
            let mut mknod = std::process::Command::new("mknod");
            let made = mknod.arg(&path).args(["c", major, "1"]).status();
            if !made.unwrap().success() {
                return; // for root alone
            }
            assert_eq!(exists(root.path(), &wanted), expected);
        }
    }

    #[test]
    fn refuses_other_node_on_host() {
        let null = |minor, mode| node("/dev/null", 1, minor, mode);
        check(&[null(3, 0o666)]).unwrap();
        let wrong = check(&[null(5, 0o666)]).unwrap_err().line();
        assert!(
            wrong.starts_with(
                "device node /dev/null on the host is 1:3 mode 0666, not 1:5 mode 0666; hint: "
            ),
            "{wrong}"
        );
        let absent = node("/dev/nvidia-caps/nvidia-cap99999", 511, 99999, 0o444);
        let line = check(&[absent]).unwrap_err().line();
        assert!(
            line.contains("No such file") && line.contains("nvidia-cap99999 c 511 99999"),
            "{line}"
        );
        let file = node("/proc/self/stat", 1, 3, 0o444);
        let line = check(&[file]).unwrap_err().line();
        assert!(line.contains("is not a character device"), "{line}");
    }
}
