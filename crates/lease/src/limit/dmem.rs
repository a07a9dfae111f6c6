//! Gives a cgroup the files of the kernel's controller `dmem`, where the kernel has it.

use crate::effect;
use crate::error::{Context, Error, Result};
use crate::files;
use std::fs::OpenOptions;
use std::path::Path;

const CONTROLLER: &str = "dmem";
/// The most of a list of controllers, in bytes.
const MAX_LIST: u64 = 4096;

/// Hands the controller down to a cgroup, from the root of the hierarchy on. Systemd does not know the controller, and
/// low-level runtimes differ. Without the controller the driver keeps limits by itself.
///
/// # Errors
/// A cgroup above refuses the controller, as one does that has processes.
pub(super) fn provide(root: &Path, cgroup: &Path) -> Result<()> {
    if !lists(&root.join("cgroup.controllers"))? {
        return Ok(());
    }
    let mut above: Vec<&Path> = cgroup.ancestors().skip(1).collect();
    above.retain(|dir| dir.starts_with(root));
    for dir in above.into_iter().rev() {
        let list = dir.join("cgroup.subtree_control");
        if !lists(&list)? {
            let opened = effect::open(OpenOptions::new().write(true), &list);
            let written = opened.and_then(|mut file| effect::write_all(&mut file, b"+dmem"));
            written.context(|| format!("enable {CONTROLLER} in {}", list.display()))?;
        }
    }
    match cgroup.join("dmem.max").exists() {
        true => Ok(()),
        false => Err(Error::new(format!(
            "cgroup {} has no {CONTROLLER}.max",
            cgroup.display()
        ))),
    }
}

fn lists(file: &Path) -> Result<bool> {
    let text = files::read_text(file, MAX_LIST).context(|| format!("read {}", file.display()))?;
    Ok(text.split_whitespace().any(|word| word == CONTROLLER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A tree of files in the place of the kernel's, whose answers it does not give.
    #[test]
    fn hands_controller_down_where_it_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let leaf = root.join("a/b");
        fs::create_dir_all(&leaf).unwrap();
        let list = |dir: &str| root.join(dir).join("cgroup.subtree_control");
        for (dir, text) in [("", "cpu dmem\n"), ("a", "cpu\n"), ("a/b", "\n")] {
            fs::write(list(dir), text).unwrap();
        }
        let controllers = root.join("cgroup.controllers");
        fs::write(&controllers, "cpu memory\n").unwrap();
        provide(root, &leaf).unwrap();
        assert_eq!(fs::read_to_string(list("a")).unwrap(), "cpu\n");

        fs::write(&controllers, "cpu dmem memory\n").unwrap();
        let missing = provide(root, &leaf).unwrap_err().line();
        assert!(missing.ends_with("a/b has no dmem.max"), "{missing}");
        fs::write(leaf.join("dmem.max"), "").unwrap();
        provide(root, &leaf).unwrap();
        assert_eq!(fs::read_to_string(list("")).unwrap(), "cpu dmem\n");
        assert_eq!(fs::read_to_string(list("a")).unwrap(), "+dmem");
        assert_eq!(fs::read_to_string(list("a/b")).unwrap(), "\n");

        fs::remove_file(list("a")).unwrap();
        let unread = provide(root, &leaf).unwrap_err().line();
        assert!(unread.contains("a/cgroup.subtree_control"), "{unread}");
    }
}
