//! The effects of an operation against its system calls under strace. Each effect makes a call of its own, which names it,
//! before it happens. So every system call that changes something has to follow the effect that it belongs to.

use std::path::Path;
use std::process::Command;

/// The folder of the names by which a marked child tells its effects. It is not there.
pub const MARKS: &str = "/runmig-effect";

/// The system calls of each kind of effect.
const CALLS: &[(&str, &[&str])] = &[
    ("Open", &["openat"]),
    ("Write", &["openat", "write"]),
    ("Cut", &["ftruncate"]),
    ("Sync", &["fsync"]),
    ("Rename", &["rename", "renameat"]),
    ("Link", &["link", "linkat"]),
    ("Unlink", &["unlink", "unlinkat"]),
    ("MakeDir", &["mkdir"]),
    ("RemoveDir", &["rmdir", "unlinkat", "unlink"]),
    ("Mode", &["chmod", "fchmod"]),
    ("Owner", &["fchown"]),
    ("Lock", &["flock", "fcntl"]),
    ("Start", &["clone", "clone3", "vfork"]),
    ("Kill", &["kill", "pidfd_send_signal"]),
    ("Driver", &[]),
];

const TRACED: &str = "trace=access,faccessat,faccessat2,openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,\
    renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,chmod,fchmod,fchmodat,chown,fchown,fchownat,flock,fcntl,clone,\
    clone3,fork,vfork,kill,tkill,tgkill,pidfd_send_signal,symlink,symlinkat,mknod,mknodat,truncate,msync,sendfile,\
    copy_file_range";

/// Calls that change something without an effect, or seem to.
fn reason(call: &str) -> Option<&'static str> {
    let is = |words: &[&str]| words.iter().any(|word| call.contains(word));
    let name = call.split('(').next().unwrap_or_default();
    Some(match name {
        _ if is(&["/live/machine/"]) => "the simulated driver, which stands for the kernel's",
        _ if is(&["/live/root/"]) => "the low-level runtime, whose part the test plays",
        "openat" if !is(&["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"]) => "opens for reading",
        "openat" | "write" if is(&["/dev/null"]) => "the null device",
        "flock" if is(&["LOCK_SH", "LOCK_UN"]) => "a look whether a lock is held",
        "fcntl" if !is(&["F_OFD_SETLK", "F_SETLK"]) => "a descriptor of this process",
        "write" if is(&["<anon_inode", "eventfd"]) => "a wake-up within this process",
        "clone" | "clone3" if is(&["CLONE_THREAD"]) => "a thread of this process",
        "kill" if is(&[", 0)"]) => "a look whether a process lives",
        _ => return None,
    })
}

/// Runs an operation of this program under strace. Returns the number of its effects, or none without strace.
pub fn compare(operation: &str, log: &Path) -> Result<Option<usize>, String> {
    if Command::new("strace").arg("-V").output().is_err() {
        return Ok(None);
    }
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut run = Command::new("strace");
    run.args([
        "-f",
        "-y",
        "-qq",
        "-s",
        "256",
        "-e",
        "signal=none",
        "-e",
        TRACED,
        "-o",
    ]);
    let run = run.arg(log).arg(own).args(["--marked", operation]).output();
    let run = run.map_err(|e| e.to_string())?;
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).into_owned());
    }
    let text = std::fs::read(log).map_err(|e| e.to_string())?;
    judge(&String::from_utf8_lossy(&text)).map(Some)
}

fn judge(text: &str) -> Result<usize, String> {
    let lines = text.lines().filter_map(|line| {
        let (pid, call) = line.split_once(' ')?;
        Some((pid, call.trim_start()))
    });
    let (mut child, mut effects, mut of) = (None, 0, None::<(&str, Vec<&str>)>);
    // A look at a file system that may hang runs in a child, and changes nothing.
    let mut looks: Vec<String> = Vec::new();
    let mut wrong = Vec::new();
    // The calls of an effect that does not reach the system, as a name that is too long would be, are not wrong.
    for (pid, call) in lines {
        if let Some((_, mark)) = call.split_once(&format!("\"{MARKS}/")) {
            match mark.split('"').next().unwrap_or_default() {
                "begin" => child = Some(pid),
                "end" => child = None,
                kind if child == Some(pid) => {
                    effects += 1;
                    of = Some((kind, Vec::new()));
                }
                _ => {}
            }
            continue;
        }
        if child != Some(pid)
            || call.starts_with("<...")
            || call.starts_with("access")
            || reason(call).is_some()
        {
            continue;
        }
        let name = call.split('(').next().unwrap_or_default();
        let kind = of.as_ref().map(|(kind, _)| *kind);
        if name == "clone" && kind != Some("Start") {
            looks.extend(call.rsplit("= ").next().map(str::to_owned));
            continue;
        }
        if looks
            .iter()
            .any(|look| call.starts_with(&format!("kill({look},")))
        {
            continue;
        }
        let allowed = of
            .as_ref()
            .and_then(|(kind, _)| CALLS.iter().find(|(known, _)| known == kind));
        let is_its = allowed.is_some_and(|(_, calls)| calls.contains(&name));
        // One call for one effect; a folder is made and removed by several, and a file of the kernel is opened and written.
        let is_one = of.as_ref().is_some_and(|(kind, before)| {
            before.is_empty() || matches!(*kind, "MakeDir" | "RemoveDir" | "Write" | "Lock")
        });
        match &mut of {
            Some((_, before)) if is_its && is_one => before.push(name),
            _ => wrong.push(format!("{call} after {of:?}")),
        }
    }
    match wrong.is_empty() {
        true if effects > 0 => Ok(effects),
        true => Err("no effect was seen".to_owned()),
        false => Err(format!(
            "system calls outside of effects:\n{}",
            wrong.join("\n")
        )),
    }
}
