//! The value of a request for whole GPUs: a number.

use super::MAX_COUNT;
use crate::error::{Error, Result, printable};

/// Returns the number of GPUs that an annotation asks for; `none` gives `None`.
pub(super) fn count(value: &str) -> Result<Option<u32>> {
    let text = value.trim();
    if text == "none" {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|n| (1..=MAX_COUNT).contains(n));
    let is_plain = text.bytes().all(|c| c.is_ascii_digit());
    match number.filter(|_| is_plain) {
        Some(number) => Ok(Some(number)),
        None => Err(Error::new(format!(
            "\"{}\" is no number of GPUs from 1 to {MAX_COUNT}",
            printable(value)
        ))
        .hint("ask for whole GPUs by their number (1), or for none")),
    }
}
