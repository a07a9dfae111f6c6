//! The CDI devices that containers use to ask, as `migctl configure cdi` writes them, in a folder of a test's own.

use crate::prelude::*;

const CDI: &str = "/etc/cdi";

/// Returns a command that sees the folder as /etc/cdi, and nothing else of it.
pub fn with_folder(folder: &Path, command: &Command) -> Command {
    // The mount needs a folder. One that the machine did not have goes at the end of the process.
    if fs::create_dir(CDI).is_ok() {
        // SAFETY: the function makes one system call, and stays as long as the process.
        unsafe { libc::atexit(remove_folder) };
    }
    crate::mounted::with_folder(folder, CDI, command)
}

extern "C" fn remove_folder() {
    let _ = fs::remove_dir(CDI);
}

/// Writes the files into a folder.
#[track_caller]
pub fn write(setup: &Setup, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let mut migctl = setup.plain(&setup.program("migctl"));
    migctl.args(["configure", "cdi"]);
    said(&mut with_folder(folder, &migctl)).ok();
}

/// Returns a device's hook, as every engine puts it into config.json.
pub fn hook(setup: &Setup, asked: &str) -> Value {
    json!({"path": setup.program(crate::REQUEST_HOOK), "args": ["runmig-request", asked]})
}
