//! The answer to a request that gets no place.

use crate::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRoom {
    /// No wait helps: the machine cannot give this, or the request is wrong.
    Never { why: String, hint: String },
    /// When a slice comes back, it may.
    Now { why: String, hint: String },
}

impl From<NoRoom> for Error {
    fn from(no: NoRoom) -> Error {
        let (NoRoom::Never { why, hint } | NoRoom::Now { why, hint }) = no;
        Error::new(why).hint(hint)
    }
}
