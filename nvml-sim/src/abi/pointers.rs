//! The pointers that clients hand over.
//!
//! These are the only places where memory of a client is touched. nvml.h makes the client answer
//! for a pointer that is not null; what NVML checks (null, lengths) is checked here.

use std::ffi::{CStr, c_char};

use super::types::version;
use crate::engine::Code;

/// Plain old data: any bytes are a value of it.
pub trait Plain: Copy {}
impl Plain for u32 {}
impl Plain for i32 {}
impl Plain for u64 {}
impl Plain for usize {}
impl Plain for u8 {}

/// A client's memory for one value or several, to be written or already written.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T: Plain> Out<T> {
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn check(self) -> Result<(), Code> {
        match self.is_null() {
            true => Err(Code::INVALID_ARGUMENT),
            false => Ok(()),
        }
    }

    pub fn put(self, value: T) -> Result<(), Code> {
        self.check()?;
        // SAFETY: not null, and the client answers for the rest.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    pub fn get(self) -> Result<T, Code> {
        self.check()?;
        // SAFETY: not null, the client answers for the rest, and any bytes are a `T`.
        Ok(unsafe { self.0.read_unaligned() })
    }

    pub fn put_all(self, values: &[T]) -> Result<(), Code> {
        let mut all = values.iter().enumerate();
        all.try_for_each(|(i, v)| self.at(i).put(*v))
    }

    /// The element so many further on; null stays null.
    pub fn at(self, index: usize) -> Out<T> {
        match self.is_null() {
            true => self,
            false => Out(self.0.wrapping_add(index)),
        }
    }

    /// The first field of a versioned struct, if it asks for this version.
    pub fn version(self, number: u32, else_code: Code) -> Result<u32, Code> {
        let version = version::<T>(number);
        let is_asked = self.cast::<u32>().get()? == version;
        is_asked.then_some(version).ok_or(else_code)
    }

    /// The same memory as the beginning of another struct.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Out<u8> {
    /// A C string into a buffer of `length` bytes.
    pub fn put_text(self, length: u32, text: &str) -> Result<(), Code> {
        self.put_bytes(length, text.as_bytes())
    }

    pub fn put_bytes(self, length: u32, bytes: &[u8]) -> Result<(), Code> {
        self.check()?;
        if (length as usize) <= bytes.len() {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        self.put_all(bytes)?;
        self.at(bytes.len()).put(0)
    }
}

/// A C string of a client's.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(*const c_char);
impl Plain for Text {}

impl Text {
    pub fn get(self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and the client answers for the rest.
        let text = unsafe { CStr::from_ptr(self.0) };
        let text = text.to_str().map_err(|_| Code::INVALID_ARGUMENT)?;
        Ok(text.to_owned())
    }
}

/// A text in a struct's array: cut short if need be, with zeros behind it.
pub fn chars<const N: usize>(text: &str) -> [u8; N] {
    let mut array = [0; N];
    let length = text.len().min(N - 1);
    array[..length].copy_from_slice(&text.as_bytes()[..length]);
    array
}
