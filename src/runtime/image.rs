//! Lays out the image of a child before the fork. Between fork and exec the child must not allocate, since a
//! library's thread could have held the allocator's lock.

use super::lowlevel::LowLevel;
use runmig_lease::error::{Context, Result};
use std::ffi::{CString, OsString, c_char};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

pub struct Image {
    path: CString,
    /// The strings that `argv` and `environment` point into.
    _strings: Vec<CString>,
    argv: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// `LISTEN_PID=` and room for a number, if the environment names this process in `LISTEN_PID`.
    listen_pid: Option<Box<[u8; LISTEN_PID.len() + 11]>>,
}

const LISTEN_PID: &[u8] = b"LISTEN_PID=";

impl Image {
    pub fn new(runtime: &LowLevel, args: &[OsString]) -> Result<Image> {
        let (path, mut strings) = runtime.command(args)?;
        let arguments = strings.len();
        let us = std::process::id().to_string();
        let mut listen_pid = None;
        for (name, value) in std::env::vars_os() {
            if name == "LISTEN_PID" && value == us.as_str() {
                let mut text = Box::new([0; LISTEN_PID.len() + 11]);
                text[..LISTEN_PID.len()].copy_from_slice(LISTEN_PID);
                listen_pid = Some(text);
                continue;
            }
            let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
            strings.push(CString::new(text).because(|| "the environment holds a NUL")?);
        }
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|s| s.as_ptr()).collect()
        };
        let mut argv = pointers(&strings[..arguments]);
        argv.push(std::ptr::null());
        let mut environment = pointers(&strings[arguments..]);
        environment.extend(
            listen_pid
                .as_ref()
                .map(|text| text.as_ptr().cast::<c_char>()),
        );
        environment.push(std::ptr::null());
        Ok(Image {
            path,
            _strings: strings,
            argv,
            environment,
            listen_pid,
        })
    }

    /// Executes the image in the child, and returns only if that fails. systemd's descriptors are for the
    /// process that `LISTEN_PID` names, which is now the child.
    pub fn exec(&mut self) {
        if let Some(text) = &mut self.listen_pid {
            write_number(&mut text[LISTEN_PID.len()..], std::process::id());
        }
        // SAFETY: the path is a C string, the arrays end with a null and point to C strings, all of
        // which live in `self`.
        unsafe {
            libc::execve(
                self.path.as_ptr(),
                self.argv.as_ptr(),
                self.environment.as_ptr(),
            );
        }
    }
}

/// Writes a number in decimal, with a NUL after it.
fn write_number(mut out: &mut [u8], number: u32) {
    let _ = write!(out, "{number}\0");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_numbers_like_format() {
        for number in [0, 7, 10, 4_194_304, u32::MAX] {
            let mut out = [0xffu8; 11];
            write_number(&mut out, number);
            let end = out.iter().position(|b| *b == 0).unwrap();
            assert_eq!(&out[..end], number.to_string().as_bytes());
        }
    }
}
