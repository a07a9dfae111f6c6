//! Small file systems in memory, until they are dropped.

use crate::prelude::*;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

pub struct Mounted(PathBuf);

/// Returns a command that sees one folder in the place of another.
pub fn with_folder(folder: &Path, at: &str, command: &Command) -> Command {
    let mut inside = Command::new("unshare");
    let script = format!("mount --bind \"$0\" {at} && exec \"$@\"");
    inside.args(["--mount", "sh", "-c", &script]).arg(folder);
    inside.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        inside.current_dir(dir);
    }
    inside
}

/// Gives the calling thread mounts of its own, and so all that it starts. Only root can.
#[track_caller]
pub fn own_mounts() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
}

impl Mounted {
    #[track_caller]
    pub fn tmpfs(at: &Path, options: &str) -> Mounted {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at);
        said(&mut mount).ok();
        Mounted(at.to_owned())
    }

    #[track_caller]
    pub fn remount(&self, how: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,{how}")]).arg(&self.0);
        said(&mut mount).ok();
    }

    /// Leaves so many pages free. Returns the file that has the others.
    pub fn fill(&self, free: usize) -> PathBuf {
        let filler = self.0.join("filler");
        let mut out = File::create(&filler).unwrap();
        let mut pages = 0;
        while out.write_all(&[1; 4096]).is_ok() {
            pages += 1;
        }
        let left = 4096 * (pages - free.min(pages)) as u64;
        out.set_len(left).unwrap();
        filler
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
