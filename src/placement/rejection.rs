//! The answer to a request that gets no place.

use crate::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// No wait helps: the machine cannot give this, or the request is wrong.
    Unsatisfiable { why: String, hint: String },
    /// When a slice comes back, it may.
    NoCapacity { why: String, hint: String },
}

impl From<Rejection> for Error {
    fn from(no: Rejection) -> Error {
        let (Rejection::Unsatisfiable { why, hint } | Rejection::NoCapacity { why, hint }) = no;
        Error::new(why).hint(hint)
    }
}
