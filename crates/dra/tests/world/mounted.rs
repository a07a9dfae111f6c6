//! Small file systems, until they are dropped.

use testkit::prelude::*;

pub struct Mounted(PathBuf);

impl Mounted {
    pub fn tmpfs(at: &Path, options: &str) -> Mounted {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at);
        assert!(mount.status().unwrap().success());
        Mounted(at.to_owned())
    }

    /// Takes all room. Returns the file that has it.
    pub fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        let mut size = 1 << 20;
        let mut filled = Vec::new();
        // A write that fails leaves the part that fitted.
        while size > 0 {
            filled.resize(filled.len() + size, 0);
            if fs::write(&filler, &filled).is_err() {
                filled.truncate(filled.len() - size);
                size /= 2;
            }
        }
        filler
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
