//! Each read by which a container is judged, failing with each errno.

use runmig_lease::Liveness;
use runmig_lease::process::{Reads, View};
use runmig_lease::store::Lease;
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use testkit::prelude::*;

const US: u32 = 10;
const OTHER: i32 = 11;
/// The records of both low-level runtimes that name the other process as init.
const RUNC: (&str, &str) = (
    "/run/runc/c/state.json",
    r#"{"init_process_pid": 11, "init_process_start": 77}"#,
);
const CRUN: (&str, &str) = (
    "/run/runc/c/status",
    r#"{"pid": 11, "process-start-time": 77}"#,
);
const OPERATIONS: &str = "/run/runmig/operations";
const OPERATION: &str = "/run/runmig/operations/0a";

/// A machine with two processes, on which one read fails.
#[derive(Default)]
struct Machine {
    /// In which cgroup the other one is.
    cgroup: &'static str,
    /// The path and the text of the low-level runtime's record.
    record: (&'static str, &'static str),
    fails: Option<(usize, i32)>,
    reads: Cell<usize>,
    /// Whether a process holds the lock of the operation.
    at_work: bool,
    failed: RefCell<PathBuf>,
}

impl Machine {
    fn read<T>(&self, path: &Path, found: Option<T>) -> io::Result<T> {
        let nth = self.reads.replace(self.reads.get() + 1);
        match self.fails {
            Some((at, errno)) if at == nth => {
                self.failed.replace(path.to_owned());
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => found.ok_or(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }
}

impl Reads for Machine {
    fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let stat = |pid: i32| format!("{pid} (x) S 1{} 77 0", " 0".repeat(17));
        let text = match path.to_str().unwrap() {
            "/proc/10/stat" => Some(stat(10)),
            "/proc/11/stat" => Some(stat(OTHER)),
            "/proc/10/cgroup" => Some("0::/engine\n".to_owned()),
            "/proc/11/cgroup" => Some(format!("0::{}\n", self.cgroup)),
            "/proc/self/mountinfo" => Some("1 1 0:1 / /proc rw - proc proc rw\n".to_owned()),
            "/proc/self/status" => Some("CapEff:\t0\n".to_owned()),
            path if path == self.record.0 => Some(self.record.1.to_owned()),
            _ => None,
        };
        self.read(path, text.map(String::into_bytes))
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let pids = ["10", "11", "self", "meminfo"].map(OsString::from);
        self.read(dir, (dir == Path::new("/proc")).then(|| pids.to_vec()))
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        self.read(path, Some(PathBuf::from(US.to_string())))
    }

    fn identity(&self, path: &Path) -> io::Result<(u64, u64)> {
        self.read(path, Some((4, 4_026_531_836)))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.read(path, Some(self.at_work && path == Path::new(OPERATION)))
    }

    fn answers(&self, _paths: &[PathBuf]) -> bool {
        true
    }
}

fn view() -> View {
    let view = View::new(&Machine::default(), US, true);
    assert_eq!(view.obstacle, None);
    view
}

/// A lease that is being made, by processes that are gone.
fn lease() -> Lease {
    let gone = json!({"pid": 99, "startTime": 1});
    let namespace = "4:4026531836";
    let lease = json!({
        "id": "a", "instance": "i", "portion": "all", "state": "pending", "created": "",
        "request": "1g.10gb",
        "holder": {"container": {
            "lowLevelRuntime": "/bin/runc", "root": "/run/runc", "id": "c", "bundle": "/b"
        }},
        "creator": gone, "runtimeProcess": gone,
        "namespaces": {"pid": namespace, "time": namespace, "cgroup": namespace},
        "cgroups": ["/container"]
    });
    serde_json::from_value(lease).unwrap()
}

/// If one read fails, a living container is only taken for dead if that read says that its one sign
/// of life is not there.
/// Failure: any read for the liveness of a container fails, with any errno
#[test]
fn never_hides_a_living_container() {
    let other = runmig_lease::model::Process {
        pid: OTHER,
        start_time: 77,
    };
    let (mut made, mut attached, mut run, mut begun) = (lease(), lease(), lease(), lease());
    made.operation = Some("0a".into());
    // A hook that attaches a container has no operation.
    attached.creator = other;
    run.runtime_process = Some(other);
    begun.init = Some(other);
    let signs = [
        (made, "", ("", "")),
        (attached, "", ("", "")),
        (run, "", ("", "")),
        (begun, "", ("", "")),
        (lease(), "", RUNC),
        (lease(), "", CRUN),
        (lease(), "/container/below", ("", "")),
    ];
    let view = view();
    for (sign, (lease, cgroup, record)) in signs.into_iter().enumerate() {
        let judge = |fails| {
            let machine = Machine {
                cgroup,
                record,
                at_work: lease.operation.is_some(),
                fails,
                ..Machine::default()
            };
            let life = Liveness::new(&machine, &view).sign_of_life(&lease, Path::new(OPERATIONS));
            (life, machine)
        };
        let (life, machine) = judge(None);
        assert!(life.is_some(), "sign {sign}");
        for (nth, errno) in (0..machine.reads.get()).flat_map(|n| (1..=133).map(move |e| (n, e))) {
            let (life, machine) = judge(Some((nth, errno)));
            let failed = machine.failed.borrow();
            let says_gone = match [RUNC.0, CRUN.0].map(Path::new).contains(&failed.as_path()) {
                true => says_no_record(errno),
                false => failed.starts_with("/proc/11") && says_no_process(errno),
            };
            assert!(
                life.is_some() || says_gone,
                "sign {sign}, {failed:?}, errno {errno}"
            );
        }
    }
}

fn says_no_process(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::ESRCH)
}

fn says_no_record(errno: i32) -> bool {
    let all = [libc::ENOENT, libc::ENOTDIR, libc::ENAMETOOLONG, libc::ELOOP];
    all.contains(&errno)
}

/// A record that no low-level runtime can have written keeps no slice; one that cannot be read does.
/// Failure: the low-level runtime cannot have a record at a path: too long, a link loop, or below a file
#[test]
fn impossible_records_keep_no_slice() {
    let view = view();
    let mut first = None;
    for errno in 1..=133 {
        // The fifth read or so: creator, runtime, then the record.
        let verdicts = (0..6).map(|nth| {
            let machine = Machine {
                fails: Some((nth, errno)),
                ..Machine::default()
            };
            let life = Liveness::new(&machine, &view).sign_of_life(&lease(), Path::new(OPERATIONS));
            (machine.failed.borrow().as_path() == Path::new(RUNC.0)).then_some((nth, life))
        });
        let (nth, life) = verdicts.flatten().next().unwrap();
        assert_eq!(*first.get_or_insert(nth), nth);
        assert_eq!(life.is_none(), says_no_record(errno), "errno {errno}");
    }
}

/// A process that cannot read its own namespaces judges no container.
#[test]
fn every_errno_blocks_the_view() {
    let reads = {
        let machine = Machine::default();
        View::new(&machine, US, true);
        machine.reads.get()
    };
    for (nth, errno) in (0..reads).flat_map(|n| (1..=133).map(move |e| (n, e))) {
        let machine = Machine {
            fails: Some((nth, errno)),
            ..Machine::default()
        };
        let view = View::new(&machine, US, true);
        let failed = machine.failed.borrow();
        // A kernel may be without these; then its records are of another world.
        let may_lack = failed.ends_with("ns/time") || failed.ends_with("ns/cgroup");
        let blocked =
            Liveness::new(&Machine::default(), &view).sign_of_life(&lease(), Path::new(OPERATIONS));
        assert!(
            view.obstacle.is_some() || (may_lack && says_no_process(errno)),
            "{failed:?}, errno {errno}"
        );
        assert!(blocked.is_some(), "{failed:?}, errno {errno}");
    }
}
