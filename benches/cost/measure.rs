//! One process, from fork to wait.

use std::ffi::CString;
use std::fs::File;
use std::ops::Add;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// Seconds and bytes.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    pub wall: f64,
    /// With that of the children that it waited for.
    pub cpu: f64,
    /// In MiB, of the largest process.
    pub peak: f64,
    pub status: i32,
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            wall: self.wall + other.wall,
            cpu: self.cpu + other.cpu,
            peak: self.peak.max(other.peak),
            status: self.status.max(other.status),
        }
    }
}

pub fn median(costs: &[Cost], value: impl Fn(&Cost) -> f64) -> f64 {
    let mut values: Vec<f64> = costs.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the CPU seconds of all processes that this one has waited for.
pub fn children() -> f64 {
    // SAFETY: all zeroes is a valid rusage, which is only numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a variable of the right type that lives through the call.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    assert_eq!(answer, 0, "getrusage");
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// A program and what it is called with, as the kernel takes it: between fork and exec nothing is
/// to be done.
pub struct Call {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    nowhere: File,
}

impl Call {
    pub fn new(program: &Path, arguments: &[&str]) -> Call {
        let c = |bytes: &[u8]| CString::new(bytes).expect("no NUL");
        let path = c(program.as_os_str().as_bytes());
        let mut all = vec![path.clone()];
        all.extend(arguments.iter().map(|argument| c(argument.as_bytes())));
        Call {
            path,
            arguments: all,
            environment: vec![c(b"PATH=/usr/sbin:/usr/bin:/sbin:/bin")],
            nowhere: File::options()
                .read(true)
                .write(true)
                .open("/dev/null")
                .expect("/dev/null"),
        }
    }

    pub fn env(mut self, name: &str, value: &Path) -> Call {
        let text = [name.as_bytes(), b"=", value.as_os_str().as_bytes()].concat();
        self.environment.push(CString::new(text).expect("no NUL"));
        self
    }

    /// Forked, not spawned: then the peak is the program's own, not what this process has, which
    /// a shared address space would count for it.
    pub fn run(&self) -> Cost {
        let pointers = |strings: &[CString]| {
            let all = strings.iter().map(|text| text.as_ptr());
            all.chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        let nowhere = self.nowhere.as_raw_fd();
        let begin = Instant::now();
        // SAFETY: this process has one thread, and the child makes only system calls, with what was
        // laid out before: valid, NUL-terminated strings in lists that end with a null pointer.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                for fd in 0..3 {
                    libc::dup2(nowhere, fd);
                }
                libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                libc::_exit(127);
            }
            pid
        };
        assert!(pid > 0, "fork");
        let mut status = 0;
        // SAFETY: all zeroes is a valid rusage, which is only numbers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to variables of the right type that live through the call.
        let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        let wall = begin.elapsed().as_secs_f64();
        assert_eq!(waited, pid, "wait");
        Cost {
            wall,
            cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            peak: usage.ru_maxrss as f64 * 1024.0,
            status: if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                -1
            },
        }
    }
}
