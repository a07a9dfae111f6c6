//! Tells from the cgroup file systems that a cgroup does not exist. No process can be in such a cgroup, and
//! runmig need not ask every process of the machine.

use super::in_child::{Look, Seen, look};
use super::{Host, MOUNTINFO, Reads};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const OWN_CGROUP: &str = "/proc/self/cgroup";

/// A mounted hierarchy of cgroups.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    point: PathBuf,
    /// The device number of the file system.
    dev: u64,
}

/// Returns whether each hierarchy of this machine is mounted here, and none has one of these cgroups. False
/// proves nothing.
pub(super) fn have_none(reads: &dyn Reads, cgroups: &[String]) -> bool {
    let below = |cgroup: &String| {
        let rest = Path::new(cgroup).strip_prefix("/").ok()?;
        let is_name = |part| matches!(part, Component::Normal(_));
        rest.components().all(is_name).then(|| rest.to_owned())
    };
    let Some(cgroups) = cgroups.iter().map(below).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let text = |bytes: io::Result<Vec<u8>>| String::from_utf8(bytes.ok()?).ok();
    let (own, mounts) = (reads.file(Path::new(OWN_CGROUP)), reads.mounts());
    let (Some(own), Some(mounts)) = (text(own), text(mounts)) else {
        return false;
    };
    let Some(hierarchies) = mounted(&own, &mounts) else {
        return false;
    };
    let is_absent = |hierarchy: &Hierarchy, cgroup: &PathBuf| {
        let found = reads.identity(&hierarchy.point.join(cgroup));
        matches!(found, Err(e) if e.kind() == io::ErrorKind::NotFound)
    };
    hierarchies.iter().all(|hierarchy| {
        is_there(reads, hierarchy) && cgroups.iter().all(|cgroup| is_absent(hierarchy, cgroup))
    })
}

/// Returns whether a hierarchy is at its mount point. Another mount may cover it.
fn is_there(reads: &dyn Reads, hierarchy: &Hierarchy) -> bool {
    let found = reads.identity(&hierarchy.point);
    found.is_ok_and(|(dev, _)| dev == hierarchy.dev)
}

/// Returns the mount points of the hierarchies that are mounted here, each with its root. Another mount may cover one.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let text = |bytes: io::Result<Vec<u8>>| {
        String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    };
    let own = text(Host.file(Path::new(OWN_CGROUP)));
    let mountinfo = text(Host.mounts());
    let mounts = mounts(&mountinfo);
    let last = |line: &str| {
        let all = mounts_of(line, &mounts)?;
        all.into_iter()
            .rfind(|hierarchy| is_there(&Host, hierarchy))
    };
    own.lines().filter_map(last).map(|h| h.point).collect()
}

/// Finds where each hierarchy of `/proc/PID/cgroup` is mounted, with the root that the paths there begin at.
/// Returns none if one is not, or if there is none.
fn mounted(own: &str, mountinfo: &str) -> Option<Vec<Hierarchy>> {
    let mounts = mounts(mountinfo);
    // A later mount covers an earlier one.
    let last = |line: &str| mounts_of(line, &mounts)?.pop();
    let hierarchies: Option<Vec<Hierarchy>> = own.lines().map(last).collect();
    hierarchies.filter(|all| !all.is_empty())
}

/// Returns all mounts of the hierarchy of a line of `/proc/PID/cgroup`, with its root.
fn mounts_of(line: &str, mounts: &[Mount<'_>]) -> Option<Vec<Hierarchy>> {
    let controllers = line.split(':').nth(1)?;
    let hierarchy = |mount: &Mount<'_>| {
        let (major, minor) = mount.dev.split_once(':')?;
        Some(Hierarchy {
            point: PathBuf::from(OsStr::from_bytes(&unescaped(mount.point))),
            dev: libc::makedev(major.parse().ok()?, minor.parse().ok()?),
        })
    };
    // A part of a hierarchy has its device number too, and may cover it.
    let is_covered = |n: usize| {
        mounts[n + 1..]
            .iter()
            .any(|later| later.point == mounts[n].point)
    };
    let shown = (0..mounts.len()).filter(|n| mounts[*n].shows(controllers) && !is_covered(*n));
    shown.map(|n| hierarchy(&mounts[n])).collect()
}

/// A line of `/proc/PID/mountinfo`.
pub(super) struct Mount<'t> {
    dev: &'t str,
    root: &'t str,
    pub(super) point: &'t str,
    kind: &'t str,
    /// The options of the file system.
    pub(super) options: &'t str,
}

pub(super) fn mounts(mountinfo: &str) -> Vec<Mount<'_>> {
    mountinfo.lines().filter_map(Mount::parse).collect()
}

impl<'t> Mount<'t> {
    fn parse(line: &'t str) -> Option<Mount<'t>> {
        let (mount, file_system) = line.split_once(" - ")?;
        let (mut mount, mut file_system) = (mount.split(' ').skip(2), file_system.split(' '));
        Some(Mount {
            dev: mount.next()?,
            root: mount.next()?,
            point: mount.next()?,
            kind: file_system.next()?,
            options: file_system.nth(1).unwrap_or_default(),
        })
    }

    /// Returns whether it is of the hierarchy with these controllers, with its root.
    fn shows(&self, controllers: &str) -> bool {
        let has = |name| self.options.split(',').any(|option| option == name);
        let is_kind = match controllers {
            "" => self.kind == "cgroup2",
            some => self.kind == "cgroup" && some.split(',').all(has),
        };
        is_kind && self.root == "/"
    }
}

/// File systems that depend only on a disk of this machine. Others may hang.
const LOCAL: &[&str] = &[
    "tmpfs", "ramfs", "devtmpfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs",
];

/// The largest age of a list of mounts: one serves a pass over thousands of leases. The kernel writes a line for each mount at
/// each read, and a machine with many containers has thousands.
const AGE: Duration = Duration::from_secs(1);

/// Looks at a list of mounts, as text and parsed.
fn recent<T>(see: impl FnOnce(&[u8], &Mounts) -> T) -> io::Result<T> {
    static KNOWN: Mutex<Option<(Instant, Vec<u8>, Mounts)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, text, mounts) = match known.take() {
        Some(fresh) if fresh.0.elapsed() < AGE => known.insert(fresh),
        _ => {
            let begun = Instant::now();
            let text = Host.file(Path::new(MOUNTINFO))?;
            let mounts = Mounts::new(&text);
            known.insert((begun, text, mounts))
        }
    };
    Ok(see(text, mounts))
}

/// Returns a text of `MOUNTINFO` that is not older than `AGE`.
pub(super) fn recent_mounts() -> io::Result<Vec<u8>> {
    recent(|text, _| text.to_vec())
}

/// Returns false if the file system of one of these canonical paths does not answer in time. An absent path
/// counts as an answer.
pub fn answers(paths: &[PathBuf]) -> bool {
    let all = || paths.iter().map(PathBuf::as_path);
    let remote = recent(|_, mounts| all().filter(|path| !mounts.is_local(path)).collect());
    // Without a list, each may be remote.
    let remote: Vec<&Path> = remote.unwrap_or_else(|_| all().collect());
    unanswered(remote.into_iter()).is_none()
}

/// Returns the first of these paths that cannot be looked at in time, for the file system there or where its links lead.
pub fn unanswered<'a>(paths: impl Iterator<Item = &'a Path>) -> Option<&'a Path> {
    let named = paths.filter_map(|p| Some((p, CString::new(p.as_os_str().as_bytes()).ok()?)));
    let (paths, asked): (Vec<&Path>, Vec<Look>) = { named }
        .map(|(path, name)| (path, Look::Asked(name)))
        .unzip();
    match look(&asked) {
        Ok(seen) => { seen.iter().zip(paths) }
            .find_map(|(seen, path)| (*seen == Seen::Unanswered).then_some(path)),
        // Without a child, a look could block for ever.
        Err(_) => paths.first().copied(),
    }
}

/// Mount points, each with a flag for a local file system. A later mount covers an earlier one.
struct Mounts(Vec<(Vec<u8>, bool)>);

impl Mounts {
    /// Parses a text like `/proc/PID/mountinfo`.
    fn new(text: &[u8]) -> Mounts {
        let text = String::from_utf8_lossy(text);
        let mount = |mount: &Mount<'_>| (unescaped(mount.point), LOCAL.contains(&mount.kind));
        Mounts(mounts(&text).iter().map(mount).collect())
    }

    fn is_local(&self, path: &Path) -> bool {
        let path = path.as_os_str().as_bytes();
        let covers = |point: &[u8]| {
            let rest = path.strip_prefix(point);
            rest.is_some_and(|r| r.is_empty() || r[0] == b'/' || point == b"/")
        };
        let over = self.0.iter().filter(|(point, _)| covers(point));
        over.max_by_key(|(point, _)| point.len())
            .is_some_and(|(_, is_local)| *is_local)
    }
}

/// Returns a word with its escapes decoded: `\040` is a blank.
fn unescaped(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let code = octal.and_then(|o| u8::from_str_radix(std::str::from_utf8(o).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod mounts_tests {
    use super::*;

    #[test]
    fn finds_the_mount_that_covers() {
        let mounts = Mounts::new(
            b"21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            22 21 0:5 / /run rw - tmpfs tmpfs rw\n\
            23 22 0:6 / /run/far\\040away rw - fuse.sshfs far rw\n\
            24 22 0:7 / /run/x rw - nfs4 x:/ rw\n\
            25 24 0:8 / /run/x rw - tmpfs tmpfs rw\n\
            26 24 0:8 / /run/y rw - tmpfs tmpfs rw\n\
            27 24 0:8 / /run/y rw - 9p y rw\n",
        );
        let is_local = |path: &str| mounts.is_local(Path::new(path));
        for path in ["/", "/etc", "/run/a", "/running", "/run/far", "/run/x/y"] {
            assert!(is_local(path), "{path}");
        }
        for path in ["/run/far away/b", "/run/far away", "/run/y", "/run/y/z"] {
            assert!(!is_local(path), "{path}");
        }
        assert!(!Mounts::new(b"").is_local(Path::new("/a")));
    }

    #[test]
    fn local_paths_answer() {
        let paths = ["/proc/self/stat", "/nowhere", "/"].map(PathBuf::from);
        assert!(answers(&paths));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::cgroups;

    const OWN: &str = "3:name=systemd:/a\n2:cpu,cpuacct:/\n0::/\n";
    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/c\\040pu rw,relatime shared:7 - cgroup cgroup rw,cpuacct,cpu\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    const COVERED: &str = "42 41 0:38 /part /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn finds_the_mount_of_each_hierarchy() {
        let at = |point: &str, minor| Hierarchy {
            point: point.into(),
            dev: libc::makedev(0, minor),
        };
        let all = vec![
            at("/sys/fs/cgroup/systemd", 37),
            at("/sys/fs/cgroup/c pu", 29),
            at("/sys/fs/cgroup/unified", 38),
        ];
        assert_eq!(mounted(OWN, MOUNTS), Some(all));
        let v2 = Some(vec![at("/sys/fs/cgroup/unified", 38)]);
        assert_eq!(mounted("0::/x\n", MOUNTS), v2);
        let later = format!("{MOUNTS}42 31 0:38 / /mnt rw - cgroup2 cgroup2 rw\n");
        assert_eq!(mounted("0::/x\n", &later), Some(vec![at("/mnt", 38)]));
        for (own, mounts) in [
            ("4:pids:/\n0::/\n", MOUNTS.to_owned()),
            ("0::/\n", MOUNTS.replace("0:38 /", "0:38 /../x")),
            ("0::/\n", MOUNTS.replace("cgroup2 ", "tmpfs ")),
            ("0::/\n", format!("{MOUNTS}{COVERED}")),
            ("", MOUNTS.to_owned()),
            ("0\n", MOUNTS.to_owned()),
        ] {
            assert_eq!(mounted(own, &mounts), None, "{own}");
        }
    }

    /// Mounts as above, and the folders that are there.
    struct Machine(&'static [(&'static str, u32)]);

    impl Reads for Machine {
        fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
            let is_own = path == Path::new("/proc/self/cgroup");
            Ok(if is_own { OWN } else { MOUNTS }.into())
        }
        fn names(&self, _: &Path) -> io::Result<Vec<std::ffi::OsString>> {
            unreachable!()
        }
        fn link(&self, _: &Path) -> io::Result<PathBuf> {
            unreachable!()
        }
        fn identity(&self, path: &Path) -> io::Result<(u64, u64)> {
            let found = self.0.iter().find(|(known, _)| path == Path::new(known));
            match found {
                Some((_, 0)) => Err(io::Error::from_raw_os_error(libc::EACCES)),
                Some((_, minor)) => Ok((libc::makedev(0, *minor), 1)),
                None => Err(io::Error::from_raw_os_error(libc::ENOENT)),
            }
        }
        fn is_locked(&self, _: &Path) -> io::Result<bool> {
            unreachable!()
        }
        fn answers(&self, _: &[PathBuf]) -> bool {
            unreachable!()
        }
    }

    #[test]
    fn believes_absent_folders_alone() {
        const SYSTEMD: (&str, u32) = ("/sys/fs/cgroup/systemd", 37);
        const CPU: (&str, u32) = ("/sys/fs/cgroup/c pu", 29);
        const UNIFIED: (&str, u32) = ("/sys/fs/cgroup/unified", 38);
        const POINTS: [(&str, u32); 3] = [SYSTEMD, CPU, UNIFIED];
        const HIDDEN: [(&str, u32); 3] = [SYSTEMD, CPU, (UNIFIED.0, 28)];
        const THERE: (&str, u32) = ("/sys/fs/cgroup/c pu/x/y", 29);
        const UNREADABLE: (&str, u32) = ("/sys/fs/cgroup/systemd/x/y", 0);
        let asks = |machine: &'static [(&str, u32)], cgroups: &[&str]| {
            let cgroups: Vec<String> = cgroups.iter().map(|&cgroup| cgroup.to_owned()).collect();
            have_none(&Machine(machine), &cgroups)
        };
        assert!(asks(&POINTS, &["/x/y", "/z"]));
        for name in ["x", "/x/../y", "../x"] {
            assert!(!asks(&POINTS, &["/z", name]), "{name}");
        }
        let there: &[_] = &[SYSTEMD, CPU, UNIFIED, THERE];
        let unreadable: &[_] = &[SYSTEMD, CPU, UNIFIED, UNREADABLE];
        for machine in [&HIDDEN[..], there, unreadable] {
            assert!(!asks(machine, &["/z", "/x/y"]));
        }
    }

    #[test]
    fn finds_cgroup_of_this_process() {
        for cgroup in cgroups(std::process::id() as i32) {
            assert!(!have_none(&Host, &[cgroup]));
        }
    }
}
