//! Kernels that lack a call, or refuse it: a filter answers in their place.

use crate::world_matrix::enter::Inside;
use std::io;

/// Answers one system call with an error, for a process and all that it starts.
#[derive(Clone, Copy)]
pub struct Filter {
    call: i64,
    errno: i32,
}

impl Filter {
    /// Async-signal-safe: for between fork and exec.
    pub fn install(self) -> io::Result<()> {
        let statement = |code, k| libc::sock_filter {
            code,
            jt: 0,
            jf: 0,
            k,
        };
        let (load, jump_if_equal, answer) = (0x20, 0x15, 0x06);
        let mut program = [
            // The number of the call is the first word of `seccomp_data`.
            statement(load, 0),
            libc::sock_filter {
                code: jump_if_equal,
                jt: 0,
                jf: 1,
                k: self.call as u32,
            },
            statement(answer, libc::SECCOMP_RET_ERRNO | self.errno as u32),
            statement(answer, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: the program lives until the call returns; the kernel copies it.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                ) == 0
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// A kernel that answers a call so.
pub fn answers(call: i64, errno: i32) -> Inside {
    let mut inside = Inside::default();
    inside.filter = Some(Filter { call, errno });
    inside
}
