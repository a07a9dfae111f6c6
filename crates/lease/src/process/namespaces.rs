//! Describes the view that this process has of others. A pid, a start time and a cgroup path are valid only
//! in the namespaces of the process that recorded them. In other namespaces the processes of a living
//! container seem absent.

use super::hierarchies::mounts;
use super::{PROC, Reads, all, dir, if_there, read_text};
use crate::model::Namespaces;
use std::io;
use std::path::Path;

/// The kernel's numbers of the first namespaces of a boot (`include/linux/proc_ns.h`), the same since Linux
/// 3.8. Later namespaces never get them.
const FIRST_PID: &str = ":4026531836";
const FIRST_CGROUP: &str = ":4026531835";
const FIRST_TIME: &str = ":4026531834";

/// The view that this process has of others.
#[derive(Debug)]
pub struct View {
    /// The namespaces of this process.
    pub namespaces: Namespaces,
    /// Why a living process may be invisible here.
    pub obstacle: Option<String>,
}

/// Tells whether the absence of a record's processes proves their death.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Clear,
    /// The record's pid namespace has no process any more, so all processes of the record have ended.
    Ended,
    /// Absence proves nothing, for this reason.
    Blocked(String),
}

impl View {
    /// Creates the view. `is_host_root` is true for root, except for the root of a user namespace.
    pub fn new(reads: &dyn Reads, pid: u32, is_host_root: bool) -> View {
        let namespaces = namespaces(reads);
        let obstacle = match &namespaces {
            Err(e) => Some(format!(
                "/proc does not show this process's namespaces: {e}"
            )),
            Ok(_) if !is_host_root => {
                Some("this process is not root on the host, and may not see others".to_owned())
            }
            Ok(_) => obstacle(reads, pid),
        };
        View {
            namespaces: namespaces.unwrap_or_default(),
            obstacle,
        }
    }

    /// Returns whether this process can find a record's processes by pid and start time.
    pub(crate) fn of_processes(&self, reads: &dyn Reads, record: Option<&Namespaces>) -> Sight {
        match seen_from(self, record) {
            Sight::Blocked(why) if self.sees_all_namespaces() => match record {
                Some(record) if record.pid != self.namespaces.pid => ended(reads, record, why),
                _ => Sight::Blocked(why),
            },
            sight => sight,
        }
    }

    /// Returns whether the absence of a record's cgroups proves something here.
    pub(crate) fn of_cgroups(&self, record: Option<&Namespaces>) -> Sight {
        let own = self.namespaces.cgroup.as_deref();
        let theirs = record.map(|record| record.cgroup.as_deref());
        let elsewhere = || elsewhere("cgroups are of cgroup", own, theirs, FIRST_CGROUP);
        sight(self.obstacle.clone().or_else(elsewhere))
    }

    /// Returns whether this process is in the first pid namespace, which shows the processes of every
    /// other.
    pub(crate) fn sees_all_namespaces(&self) -> bool {
        self.obstacle.is_none() && self.namespaces.pid.ends_with(FIRST_PID)
    }
}

/// Returns the sight of a record's processes.
fn seen_from(own: &View, record: Option<&Namespaces>) -> Sight {
    let Namespaces { pid, time, .. } = &own.namespaces;
    let theirs = record.map(|record| (Some(record.pid.as_str()), record.time.as_deref()));
    let (their_pid, their_time) = theirs.unzip();
    let is_elsewhere = || elsewhere("processes are of pid", Some(pid), their_pid, FIRST_PID);
    let is_of_other_time = || {
        elsewhere(
            "start times are of time",
            time.as_deref(),
            their_time,
            FIRST_TIME,
        )
    };
    let obstacle = own.obstacle.clone();
    sight(obstacle.or_else(is_elsewhere).or_else(is_of_other_time))
}

fn sight(obstacle: Option<String>) -> Sight {
    obstacle.map_or(Sight::Clear, Sight::Blocked)
}

/// Returns why this is not the namespace of a record; none if it is. A record without namespaces (`theirs`) is a claim's, whose
/// driver runs in the first ones. Elsewhere runmig cannot tell, so a doubt counts as life. A kernel may lack a namespace.
fn elsewhere(
    what: &str,
    own: Option<&str>,
    theirs: Option<Option<&str>>,
    first: &str,
) -> Option<String> {
    let (is_same, theirs) = match theirs {
        Some(theirs) => (theirs == own, theirs.unwrap_or("none")),
        None => (own.is_none_or(|own| own.ends_with(first)), "unknown"),
    };
    let own = own.unwrap_or("none");
    (!is_same).then(|| format!("its {what} namespace {theirs}, and this is {own}"))
}

/// Returns `Ended` if no process of the record's pid namespace is left. A pid namespace ends with its first
/// process, and takes its other processes and the namespaces below with it.
fn ended(reads: &dyn Reads, record: &Namespaces, why: String) -> Sight {
    let Ok(pids) = all(reads) else {
        return Sight::Blocked(why);
    };
    for pid in pids {
        match namespace_of(reads, pid) {
            Ok(Some(namespace)) if namespace == record.pid => {
                return Sight::Blocked(format!("{why}; process {pid} is there"));
            }
            Ok(_) => {}
            Err(e) => return Sight::Blocked(format!("{why}; process {pid} cannot be seen: {e}")),
        }
    }
    Sight::Ended
}

/// Returns the pid namespace of a process; none if the process is gone. It may also return none for this
/// process's own namespace, the first.
fn namespace_of(reads: &dyn Reads, pid: i32) -> io::Result<Option<String>> {
    match identity(reads, &dir(pid).join("ns/pid")) {
        // A security module may hide the namespace. Every process may read the count of numbers.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let status = read_text(reads, &dir(pid).join("status"))?;
            let numbers = status.as_deref().map_or(Some(1), numbers);
            if numbers == Some(1) { Ok(None) } else { Err(e) }
        }
        found => found,
    }
}

/// Counts the pid numbers of a process: one for each pid namespace, from this process's own down.
fn numbers(status: &str) -> Option<usize> {
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
    line.map(|l| l.split_ascii_whitespace().count())
}

fn namespaces(reads: &dyn Reads) -> io::Result<Namespaces> {
    let of = |name: &str| identity(reads, &Path::new(PROC).join("self/ns").join(name));
    let pid = of("pid")?.ok_or_else(|| io::Error::other("there is no /proc/self/ns/pid"))?;
    Ok(Namespaces {
        pid,
        // A kernel may have no such namespace.
        time: of("time")?,
        cgroup: of("cgroup")?,
    })
}

/// Returns the identity of a file; none if the file is gone.
fn identity(reads: &dyn Reads, file: &Path) -> io::Result<Option<String>> {
    let found = if_there(reads.identity(file))?;
    Ok(found.map(|(dev, ino)| format!("{dev}:{ino}")))
}

/// Returns why `/proc` may hide others. The caller has already found this process in
/// `/proc`.
fn obstacle(reads: &dyn Reads, pid: u32) -> Option<String> {
    let us = Path::new(PROC).join("self");
    let text = |name: &str| {
        let bytes = reads.file(&us.join(name))?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let found = || {
        if reads.link(&us)?.to_str() != Some(&pid.to_string()) {
            return Ok(Some("/proc is of another pid namespace than this process"));
        }
        let is_hidden = !may_trace(&text("status")?) && hides_others(&text("mountinfo")?);
        Ok(is_hidden.then_some(
            "/proc is mounted with hidepid, and this process has no CAP_SYS_PTRACE to see others",
        ))
    };
    let found: io::Result<Option<&str>> = found();
    match found {
        Ok(obstacle) => obstacle.map(str::to_owned),
        Err(e) => Some(format!("/proc/self cannot be read: {e}")),
    }
}

/// Returns whether the latest mount of `/proc` hides the processes of other users.
fn hides_others(mountinfo: &str) -> bool {
    let mounts = mounts(mountinfo);
    let latest = mounts.iter().rfind(|mount| mount.point == PROC);
    let mut options = latest.map_or("", |mount| mount.options).split(',');
    options.any(|o| matches!(o.strip_prefix("hidepid="), Some(how) if how != "0" && how != "off"))
}

/// Returns whether the effective capabilities in `/proc/PID/status` include CAP_SYS_PTRACE.
fn may_trace(status: &str) -> bool {
    const CAP_SYS_PTRACE: u64 = 19;
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok());
    set.is_some_and(|set| set & (1 << CAP_SYS_PTRACE) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Host;

    fn namespaces(pid: &str, time: &str, cgroup: &str) -> Namespaces {
        Namespaces {
            pid: pid.to_owned(),
            time: Some(time.to_owned()),
            cgroup: Some(cgroup.to_owned()),
        }
    }

    fn first() -> Namespaces {
        namespaces("4:4026531836", "4:4026531834", "4:4026531835")
    }

    fn view(namespaces: Namespaces) -> View {
        View {
            namespaces,
            obstacle: None,
        }
    }

    #[test]
    fn judges_in_the_writers_namespaces_only() {
        let other = namespaces("4:4026539999", "4:4026539998", "4:4026539997");
        for own in [first(), other.clone()] {
            let view = view(own.clone());
            assert_eq!(view.of_processes(&Host, Some(&own)), Sight::Clear);
            assert_eq!(view.of_cgroups(Some(&own)), Sight::Clear);
        }
        let blocked = |own: &Namespaces, record: &Namespaces| {
            let sight = seen_from(&view(own.clone()), Some(record));
            matches!(sight, Sight::Blocked(_))
        };
        let (mut pid, mut time, mut cgroup) = (first(), first(), first());
        pid.pid = other.pid.clone();
        time.time = other.time.clone();
        cgroup.cgroup = other.cgroup.clone();
        for (own, record) in [(&first(), &pid), (&pid, &first())] {
            assert!(blocked(own, record));
        }
        assert!(blocked(&first(), &time) && blocked(&time, &first()));
        assert!(!blocked(&first(), &cgroup) && !blocked(&cgroup, &first()));
        for (own, record) in [(first(), cgroup.clone()), (cgroup, first())] {
            let sight = view(own).of_cgroups(Some(&record));
            assert!(matches!(sight, Sight::Blocked(_)));
        }
    }

    #[test]
    fn first_pid_namespace_sees_all_unless_proc_hides_some() {
        let (mut hidden, below) = (view(first()), namespaces("4:4026539999", "", ""));
        assert!(hidden.sees_all_namespaces() && !view(below).sees_all_namespaces());
        hidden.obstacle = Some("hidepid".to_owned());
        assert!(!hidden.sees_all_namespaces());
    }

    #[test]
    fn judges_claims_in_first_namespaces() {
        assert_eq!(seen_from(&view(first()), None), Sight::Clear);
        assert_eq!(view(first()).of_cgroups(None), Sight::Clear);
        let other = namespaces("4:4026539999", "4:4026531834", "4:4026539997");
        assert!(matches!(
            seen_from(&view(other.clone()), None),
            Sight::Blocked(_)
        ));
        assert!(matches!(view(other).of_cgroups(None), Sight::Blocked(_)));
        // An old kernel has neither namespace.
        let old = Namespaces {
            time: None,
            cgroup: None,
            ..first()
        };
        assert_eq!(seen_from(&view(old), None), Sight::Clear);
    }

    #[test]
    fn counts_pid_namespaces_by_numbers() {
        assert_eq!(numbers("Pid:\t7\nNSpid:\t7\n"), Some(1));
        assert_eq!(numbers("Pid:\t7\nNSpid:\t7\t1\n"), Some(2));
        assert_eq!(numbers("Pid:\t7\n"), None);
    }

    #[test]
    fn hidepid_needs_a_capability() {
        let line = |options: &str| {
            format!("22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw{options}\n")
        };
        assert!(!hides_others(&line("")));
        assert!(!hides_others(&line(",hidepid=off")));
        assert!(hides_others(&line(",gid=5,hidepid=invisible")));
        assert!(hides_others(&(line("") + &line(",hidepid=2"))));
        assert!(!hides_others(&(line(",hidepid=2") + &line(""))));
        assert!(may_trace("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_trace("Name:\tx\nCapEff:\t00000000a80425fb\n"));
        assert!(!may_trace(""));
    }

    /// The processes of a machine: the inode of each one's pid namespace or the errno of its read, and its line of pids.
    struct Processes(&'static [(i32, Result<u64, i32>, Option<&'static str>)]);

    impl Processes {
        fn with(&self, path: &Path, name: &str) -> (Result<u64, i32>, Option<&str>) {
            let is_its = |pid: i32| dir(pid).join(name) == path;
            let found = self.0.iter().find(|(pid, ..)| is_its(*pid)).unwrap();
            (found.1, found.2)
        }
    }

    impl Reads for Processes {
        fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
            let (_, numbers) = self.with(path, "status");
            let numbers = numbers.ok_or(io::Error::from_raw_os_error(libc::ENOENT))?;
            Ok(format!("NSpid:\t{numbers}\n").into())
        }
        fn names(&self, _: &Path) -> io::Result<Vec<std::ffi::OsString>> {
            let pids = self.0.iter().map(|(pid, ..)| pid.to_string().into());
            Ok(pids.collect())
        }
        fn identity(&self, path: &Path) -> io::Result<(u64, u64)> {
            let (inode, _) = self.with(path, "ns/pid");
            Ok((4, inode.map_err(io::Error::from_raw_os_error)?))
        }
        fn link(&self, _: &Path) -> io::Result<std::path::PathBuf> {
            unreachable!()
        }
        fn is_locked(&self, _: &Path) -> io::Result<bool> {
            unreachable!()
        }
        fn answers(&self, _: &[std::path::PathBuf]) -> bool {
            unreachable!()
        }
    }

    #[test]
    fn namespace_has_ended_when_every_process_is_seen_elsewhere() {
        const FIRST: u64 = 4026531836;
        let theirs = namespaces("4:9", "4:4026531834", "4:4026531835");
        let judge = |own: Namespaces, record: &Namespaces, machine: Processes| match view(own)
            .of_processes(&machine, Some(record))
        {
            Sight::Clear => "clear".to_owned(),
            Sight::Ended => "ended".to_owned(),
            Sight::Blocked(why) => why
                .split_once("; ")
                .map_or("blocked", |why| why.1)
                .to_owned(),
        };
        let unseen = |errno| {
            let e = io::Error::from_raw_os_error(errno);
            format!("process 7 cannot be seen: {e}")
        };
        const US: (i32, Result<u64, i32>, Option<&str>) = (1, Ok(FIRST), None);
        for (processes, sight) in [
            (&[US][..], "ended".to_owned()),
            (&[US, (7, Ok(8), None)], "ended".to_owned()),
            (&[US, (7, Ok(9), None)], "process 7 is there".to_owned()),
            (&[US, (7, Err(libc::ENOENT), None)], "ended".to_owned()),
            (&[US, (7, Err(libc::EACCES), None)], "ended".to_owned()),
            (&[US, (7, Err(libc::EACCES), Some("7"))], "ended".to_owned()),
            (
                &[US, (7, Err(libc::EACCES), Some("7\t1"))],
                unseen(libc::EACCES),
            ),
            (&[US, (7, Err(libc::EIO), Some("7"))], unseen(libc::EIO)),
        ] {
            let judged = judge(first(), &theirs, Processes(processes));
            assert_eq!(judged, sight, "{processes:?}");
        }
        // Only the first namespace sees all others, and it goes on itself.
        let elsewhere = namespaces("4:8", "4:4026531834", "4:4026531835");
        assert_eq!(judge(elsewhere, &theirs, Processes(&[])), "blocked");
        let of_other_time = namespaces("4:4026531836", "4:7", "4:4026531835");
        assert_eq!(judge(first(), &of_other_time, Processes(&[])), "blocked");
    }
}
