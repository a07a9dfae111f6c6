//! Starts a daemon with its limit, opens the door to it, and ends it.

use super::Home;
use super::Program;
use super::cgroup;
use super::launch::{self, Image};
use super::running::{self, Talk};
use crate::error::{Context, Error, Result, printable};
use crate::model::{LeaseId, Process};
use crate::{effect, files, paths};
use nix::unistd::Pid;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most of a log that an error shows, in bytes.
const MAX_LOG: u64 = 64 * 1024;

/// The size at which a collector empties a log, in bytes.
const MAX_LOG_FILE: u64 = 1 << 20;

/// A daemon to start.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub home: &'a Home,
    pub program: &'a Program,
    /// The UUID of the daemon's only device: a GPU, or the MIG device of a slice.
    pub device: &'a str,
    /// The memory limit of each client, in MiB.
    pub limit_mib: u64,
}

/// Starts a daemon, sets its limit, reads it back, and then opens the door. No server runs before the first
/// client, so no client is ever without the limit. `record` puts the process on record before it begins.
///
/// # Errors
/// A step fails. Directories, cgroup and process may be there, and `end` removes them.
pub(crate) fn start(order: &Order<'_>, record: impl FnOnce(Process) -> Result<()>) -> Result<()> {
    let home = order.home;
    for (folder, mode) in [
        (&home.folder, 0o700),
        (&home.pipes(), 0o700),
        (&home.logs(), 0o700),
        // The container's users look for the socket there.
        (&home.door(), 0o755),
    ] {
        // The mode of a new folder is cut by the caller's umask.
        effect::make_dir_all(folder, mode)
            .and_then(|()| effect::set_mode(folder, mode))
            .context(|| format!("make {}", folder.display()))?;
    }
    remove_sockets(home).context(|| format!("remove the sockets in {}", home.pipes().display()))?;
    cgroup::make(&home.cgroup)?;
    let waiting = launch::fork_waiting(&image(order)?)?;
    let process = waiting.process()?;
    cgroup::enter(&home.cgroup, process.pid)?;
    keep_in_memory(process.pid);
    record(process)?;
    let end = Instant::now() + running::TIME;
    let child = waiting.begin()?;
    await_socket(home, child, end)?;
    set_limit(order, end)?;
    open_door(home)
}

/// Removes the sockets of an earlier daemon, which nothing listens at.
fn remove_sockets(home: &Home) -> std::io::Result<()> {
    for entry in std::fs::read_dir(home.pipes())? {
        effect::remove_file(&entry?.path())?;
    }
    Ok(())
}

fn image(order: &Order<'_>) -> Result<Image> {
    let text = |bytes: &[u8]| CString::new(bytes).context(|| "start an MPS daemon");
    let variable = |name: &str, value: &[u8]| text(&[name.as_bytes(), b"=", value].concat());
    let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let program = &order.program.path;
    // The server is a program beside it.
    let beside = program.parent().unwrap_or(Path::new("/"));
    let search = [&path(beside), &b":/usr/sbin:/usr/bin:/sbin:/bin"[..]].concat();
    let log = order.home.logs().join("daemon.log");
    let mut appending = OpenOptions::new();
    appending.create(true).append(true).mode(0o600);
    let opened = effect::open(&appending, &log);
    Ok(Image {
        program: text(&path(program))?,
        arguments: vec![
            text(&path(program))?,
            text(b"-f")?,
            text(order.program.multi_user.as_bytes())?,
        ],
        environment: vec![
            variable("PATH", &search)?,
            variable("CUDA_VISIBLE_DEVICES", order.device.as_bytes())?,
            variable("CUDA_MPS_PIPE_DIRECTORY", &path(&order.home.pipes()))?,
            variable("CUDA_MPS_LOG_DIRECTORY", &path(&order.home.logs()))?,
            variable("CUDA_MPS_PROTOCOL_VERSION", b"2")?,
        ],
        log: opened.context(|| format!("open {}", log.display()))?,
    })
}

/// Makes the kernel end other processes before the daemon when memory is short, as far as it allows.
fn keep_in_memory(pid: i32) {
    let file = format!("/proc/{pid}/oom_score_adj");
    if effect::write(Path::new(&file), "-999").is_err() {
        tracing::debug!("{file} cannot be lowered");
    }
}

/// Waits until the daemon has its sockets.
fn await_socket(home: &Home, child: Pid, end: Instant) -> Result<()> {
    let mut gap = Duration::from_millis(1);
    let sockets = ["control", "control_privileged"].map(|name| home.pipes().join(name));
    loop {
        if sockets.iter().all(|socket| socket.exists()) {
            return Ok(());
        }
        let log = || last_line(&home.logs().join("daemon.log"));
        if let Some(ended) = launch::ended(child) {
            return Err(Error::new(format!(
                "the MPS daemon has ended: it {ended}{}",
                log()
            )));
        }
        if Instant::now() >= end {
            let waited = running::TIME.as_secs();
            let text = format!("the MPS daemon did not listen within {waited} s{}", log());
            return Err(Error::new(text));
        }
        effect::pause(gap);
        gap = (gap * 2).min(Duration::from_millis(20));
    }
}

/// Returns the last line of a log after a colon; nothing if there is none.
fn last_line(log: &Path) -> String {
    let text = files::read(log, MAX_LOG).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.map_or(String::new(), |line| format!(": {}", printable(line)))
}

/// Sets the limit and reads it back. The program's status is 0 even if the daemon refused the command.
fn set_limit(order: &Order<'_>, end: Instant) -> Result<()> {
    let talk = Talk {
        program: &order.program.path,
        pipes: order.home.pipes(),
        end,
    };
    let said = first_answer(&talk, &running::set(order.limit_mib))?;
    let answer = talk.tell(running::GET)?;
    let expected = running::answer(order.limit_mib);
    if answer == expected {
        return Ok(());
    }
    Err(running::differs("the", &answer, order.limit_mib, &said))
}

/// Returns the answer to the first command. A socket exists a moment before the daemon listens at it.
fn first_answer(talk: &Talk<'_>, command: &str) -> Result<String> {
    let mut gap = Duration::from_millis(1);
    loop {
        match talk.tell(command) {
            Err(_) if Instant::now() < talk.end => effect::pause(gap),
            answer => return answer,
        }
        gap = (gap * 2).min(Duration::from_millis(100));
    }
}

/// Links the socket into the door. The new link takes the place of one that leads to an earlier daemon.
fn open_door(home: &Home) -> Result<()> {
    let (new, link) = (home.folder.join("control.new"), home.door().join("control"));
    let what = || format!("link {}", link.display());
    files::unlink(&new).context(what)?;
    let socket = home.pipes().join("control");
    // Every user of the container connects to it.
    effect::set_mode(&socket, 0o666).context(what)?;
    effect::hard_link(&socket, &new).context(what)?;
    effect::rename(&new, &link).context(what)
}

/// Empties logs that have grown large. The daemon appends, so it goes on at the start. A container could fill the
/// state directory with starts of CUDA.
pub(crate) fn cut_logs(home: &Home) -> Result<()> {
    let logs = home.logs();
    let what = || format!("cut the logs in {}", logs.display());
    for entry in std::fs::read_dir(&logs).context(what)? {
        let entry = entry.context(what)?;
        let meta = entry.metadata().context(what)?;
        if meta.is_file() && meta.len() > MAX_LOG_FILE {
            let file = effect::open(OpenOptions::new().write(true), &entry.path());
            file.and_then(|file| effect::set_len(&file, 0))
                .context(what)?;
        }
    }
    Ok(())
}

/// Returns whether something is left of a daemon: a process, a cgroup or a directory.
pub(crate) fn is_there(home: &Home) -> Result<bool> {
    let alive = cgroup::anywhere(&home.cgroup).context(|| "look for an MPS daemon")?;
    Ok(alive.is_some() || cgroup::exists(&home.cgroup) || home.folder.exists())
}

/// Kills a daemon with its server. Then it removes the cgroup and, unless the container goes on, the directories.
/// Returns the rest that did not end in time; none once all is gone.
pub(crate) fn end(home: &Home, goes_on: bool) -> Result<Option<String>> {
    let what = || format!("end the processes of cgroup {}", home.cgroup);
    let is_seen = cgroup::exists(&home.cgroup);
    let (end, mut gap) = (Instant::now() + LONG_ENOUGH, Duration::from_millis(1));
    loop {
        let left = match cgroup::first(&home.cgroup).context(what)? {
            Some(pid) => {
                cgroup::kill(&home.cgroup).context(what)?;
                format!("process {pid}")
            }
            None => match cgroup::remove(&home.cgroup) {
                Ok(()) => break,
                // A process that has ended may stay in its cgroup for a moment.
                Err(e) if e.kind() == ErrorKind::ResourceBusy => format!("cgroup {}", home.cgroup),
                Err(e) => return Err(e).context(|| format!("remove cgroup {}", home.cgroup)),
            },
        };
        if Instant::now() >= end {
            return Ok(Some(left));
        }
        effect::pause(gap);
        gap = (gap * 2).min(Duration::from_millis(20));
    }
    // In another cgroup namespace than the create's, the hierarchies here do not show it.
    if !is_seen && let Some(pid) = cgroup::anywhere(&home.cgroup).context(what)? {
        return Ok(Some(format!("process {pid}")));
    }
    if goes_on {
        return Ok(None);
    }
    let removed = files::if_there(effect::remove_dir_all(&home.folder));
    removed.context(|| format!("remove {}", home.folder.display()))?;
    Ok(None)
}

/// Returns the leases that have directories below a state directory.
pub(crate) fn homes(state_dir: &Path) -> Vec<LeaseId> {
    let id = |home: PathBuf| Some(LeaseId::new(home.file_name()?.to_str()?));
    paths::entries(&state_dir.join("mps"))
        .filter_map(id)
        .collect()
}

/// The time in which a killed daemon ends as a rule. It takes about 50 ms, and on a busy machine many times that: a daemon
/// that is to start again would wait for the next collection.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mps::cgroup::tests::{Made, made};
    use crate::mps::program::tests::script;

    #[test]
    fn shows_the_last_line_of_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(last_line(&log), "");
        let long = format!("{}\nlast", "x".repeat(60_000));
        for (text, line) in rows! {
            "" => "";
            " \n" => "";
            "a\nb\x07\n\n \n" => ": b\\u{7}";
            long.as_str() => ": last";
        } {
            std::fs::write(&log, text).unwrap();
            assert_eq!(last_line(&log), line);
        }
    }

    #[test]
    fn asks_until_the_daemon_answers_or_the_time_is_up() {
        let dir = tempfile::tempdir().unwrap();
        let text = "#!/bin/sh\ncd $CUDA_MPS_PIPE_DIRECTORY; [ -e asked ] && exec echo set; : > asked; exit 1";
        let program = script(dir.path(), text);
        let answer = |program: &Path, time| {
            let talk = Talk {
                program,
                pipes: dir.path().to_owned(),
                end: Instant::now() + time,
            };
            first_answer(&talk, "x")
        };
        assert_eq!(answer(&program, Duration::from_secs(60)).unwrap(), "set");
        assert!(answer(Path::new("/bin/false"), Duration::ZERO).is_err());
    }

    fn home(folder: PathBuf, cgroup: &str) -> Home {
        let cgroup = cgroup.to_owned();
        Home { folder, cgroup }
    }

    #[test]
    fn directory_or_cgroup_is_left_of_a_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let (there, gone) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir(&there).unwrap();
        let nowhere = "runmig-mps-nowhere";
        assert!(is_there(&home(there, nowhere)).unwrap());
        assert!(!is_there(&home(gone.clone(), nowhere)).unwrap());
        let Some(Made(cgroup)) = &made("left") else {
            return;
        };
        let home = home(gone, cgroup);
        assert!(is_there(&home).unwrap());
        assert_eq!(end(&home, false).unwrap(), None);
        assert!(!is_there(&home).unwrap());
    }

    #[test]
    fn names_a_cgroup_that_stays() {
        let Some(Made(cgroup)) = &made("busy") else {
            return;
        };
        let below = format!("{cgroup}/below");
        cgroup::make(&below).unwrap();
        let home_of = |cgroup: &str| home("/nowhere".into(), cgroup);
        let left = end(&home_of(cgroup), true).unwrap();
        assert_eq!(left, Some(format!("cgroup {cgroup}")));
        cgroup::remove(&below).unwrap();
        assert_eq!(end(&home_of(cgroup), true).unwrap(), None);
        // The kernel's own file, which is not a cgroup.
        let line = end(&home_of("cgroup.procs"), true).unwrap_err().line();
        assert!(
            line.starts_with("cannot remove cgroup cgroup.procs: "),
            "{line}"
        );
    }
}
