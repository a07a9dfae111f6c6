//! Finds the processes that have a file or device open, without asking a file server about any open file.

use super::in_child::{Look, Seen, look};
use super::{Host, Reads, all, dir, name};
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest number of descriptors that runmig looks at: more than a machine has, but bounded.
const MOST: usize = 1 << 18;

/// The processes that have a slice open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// The processes that were found, as `(pid, name)`.
    pub seen: Vec<(i32, String)>,
    /// Why there may be more.
    pub unseen: Option<String>,
}

impl Holders {
    /// Returns these processes as the holders.
    pub(crate) fn of(pids: impl IntoIterator<Item = i32>) -> Holders {
        Holders {
            seen: pids.into_iter().map(|pid| (pid, name(pid))).collect(),
            unseen: None,
        }
    }

    /// Returns no holder, and why there may be some.
    pub(crate) fn unseen(why: String) -> Holders {
        Holders {
            seen: Vec::new(),
            unseen: Some(why),
        }
    }
}

/// Finds the processes that have one of these files or devices open. It misses processes that a security
/// module hides, and descriptors in transit through a socket.
pub(crate) fn holders_of(files: &[PathBuf], devices: &[(u32, u32)]) -> Holders {
    // The files are in the driver's own part of `/proc`.
    let metadata = files.iter().filter_map(|f| std::fs::metadata(f).ok());
    let wanted = Wanted {
        files: metadata.map(|m| (m.dev(), m.ino())).collect(),
        devices: { devices.iter() }
            .map(|&(major, minor)| libc::makedev(major, minor))
            .collect(),
    };
    if wanted.files.is_empty() && wanted.devices.is_empty() {
        return Holders::default();
    }
    let failed = |e| Holders::unseen(format!("open files cannot be looked at: {e}"));
    search(&wanted).unwrap_or_else(failed)
}

struct Wanted {
    files: Vec<(u64, u64)>,
    devices: Vec<u64>,
}

fn search(wanted: &Wanted) -> io::Result<Holders> {
    let mut descriptors: Vec<(i32, CString)> = Vec::new();
    for (pid, table) in tables()? {
        // A process that has ended has nothing open.
        for fd in Host.names(&table).unwrap_or_default() {
            let path = table.join(fd).into_os_string().into_vec();
            descriptors.push((pid, CString::new(path)?));
            if descriptors.len() > MOST {
                return Err(io::Error::other(format!("there are more than {MOST}")));
            }
        }
    }
    let (pids, looks): (Vec<i32>, Vec<Look>) = { descriptors.into_iter() }
        .map(|(pid, path)| (pid, Look::Known(path)))
        .unzip();
    let seen = look(&looks)?;
    wanted.judge(pids.into_iter().zip(seen))
}

impl Wanted {
    fn judge(&self, seen: impl Iterator<Item = (i32, Seen)>) -> io::Result<Holders> {
        let (mut holders, mut unseen) = (BTreeSet::new(), None);
        for (pid, seen) in seen {
            match seen {
                Seen::File(file) => {
                    let is_device = file.mode & libc::S_IFMT == libc::S_IFCHR;
                    if self.files.contains(&(file.dev, file.ino))
                        || (is_device && self.devices.contains(&file.rdev))
                    {
                        holders.insert(pid);
                    }
                }
                // The process has closed the file, or a security module hides it, as it hides whole
                // processes.
                Seen::Failed(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EACCES) => {}
                // A filter of system calls or an old kernel causes this. A stat instead could block for
                // ever.
                Seen::Failed(e @ (Errno::ENOSYS | Errno::EPERM)) => return Err(e.into()),
                Seen::Failed(e) => unseen = unseen.or(Some((pid, e.desc().to_owned()))),
                Seen::Unanswered | Seen::Same(_) => {
                    unseen = unseen.or(Some((pid, "its file system does not answer".to_owned())));
                }
            }
        }
        Ok(Holders {
            unseen: unseen.map(|(pid, why)| {
                let name = name(pid);
                format!("a file that process {pid} {name} has open cannot be looked at: {why}")
            }),
            ..Holders::of(holders)
        })
    }
}

/// Returns the descriptor tables on the machine, each once if the kernel can compare them. Most threads
/// share the table of their process.
fn tables() -> io::Result<Vec<(i32, PathBuf)>> {
    let mut tables = Vec::new();
    let mut others: Vec<(i32, i32)> = Vec::new();
    for pid in all(&Host)? {
        tables.push((pid, dir(pid).join("fd")));
        let threads = Host.names(&dir(pid).join("task")).unwrap_or_default();
        let threads = threads.iter().filter_map(|t| t.to_str()?.parse().ok());
        others.extend(threads.filter(|thread| *thread != pid).map(|t| (pid, t)));
        if others.len() > MOST {
            return Err(io::Error::other(format!(
                "there are more than {MOST} threads"
            )));
        }
    }
    let compare = |&(pid, thread): &(i32, i32)| Look::SameFiles(pid, thread);
    let compared = look(&others.iter().map(compare).collect::<Vec<_>>())?;
    for ((pid, thread), seen) in others.into_iter().zip(compared) {
        if seen != Seen::Same(true) {
            let task = Path::new("task").join(thread.to_string()).join("fd");
            tables.push((pid, dir(pid).join(task)));
        }
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::in_child::File;

    fn judged(seen: Seen) -> io::Result<Holders> {
        let wanted = Wanted {
            files: vec![(7, 8)],
            devices: vec![9],
        };
        // The number belongs to no process.
        wanted.judge(std::iter::once((i32::MAX, seen)))
    }

    #[test]
    fn finds_wanted_files_and_devices() {
        let file = |mode, dev, ino, rdev| {
            let file = File {
                mode,
                dev,
                ino,
                rdev,
            };
            judged(Seen::File(file)).unwrap().seen.len()
        };
        assert_eq!(file(libc::S_IFREG, 7, 8, 0), 1);
        assert_eq!(file(libc::S_IFREG, 7, 9, 9), 0);
        assert_eq!(file(libc::S_IFCHR, 1, 1, 9), 1);
        assert_eq!(file(libc::S_IFBLK, 1, 1, 9), 0);
    }

    /// A closed or hidden file counts as not held; any other failure may hide a holder.
    #[test]
    fn reports_every_errno_but_four() {
        let nothing = [Errno::ENOENT, Errno::ESRCH, Errno::EBADF, Errno::EACCES];
        for errno in (1..=133).map(Errno::from_raw) {
            let told = match judged(Seen::Failed(errno)) {
                Ok(holders) => holders.unseen.is_some(),
                Err(_) => true,
            };
            assert_eq!(told, !nothing.contains(&errno), "{errno}");
        }
        assert!(judged(Seen::Unanswered).unwrap().unseen.is_some());
        let unseen = Holders::unseen("hidden".to_owned());
        assert_eq!(
            (unseen.seen, unseen.unseen.as_deref()),
            (vec![], Some("hidden"))
        );
    }
}
