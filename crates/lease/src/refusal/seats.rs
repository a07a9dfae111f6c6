//! The words for a request of a seat that gets none.

use super::gpus::obstacle;
use super::{Refusal, Waited};
use crate::error::Error;
use crate::placement::SeatShortage;
use crate::request;
use crate::store::Waiting;

/// Returns the error of a create. `blockers` are the earlier requests in the queue.
pub(super) fn error(
    shortage: &SeatShortage,
    blockers: &[Waiting],
    waited: Option<Waited>,
) -> Error {
    let has_waited = waited.is_some();
    let no_slice = Refusal {
        rejection: &shortage.rejection,
        blockers,
        waited,
    };
    let no_slice = no_slice.error();
    let what = shortage.wanted.written();
    let taken = shortage.taken.iter();
    let taken: Vec<String> = taken
        .map(|(slice, why)| format!("{slice}: {}", obstacle(why)))
        .collect();
    let cause = match taken.as_slice() {
        [] => format!("it needs a new slice, and runmig {no_slice}"),
        some => format!(
            "no slice with seats has room for it ({}), and for a new slice runmig {no_slice}",
            some.join("; ")
        ),
    };
    let error = Error::new(format!("cannot allocate a {what}: {cause}"));
    let is_full = shortage.taken.iter().any(|(_, why)| why.may_pass());
    let see = "run migctl list to see who has seats in the slices";
    match (is_full, no_slice.advice()) {
        (true, _) if has_waited => error.hint(see),
        (true, _) => error.hint(format!("{see}, or set {} to wait", request::WAIT)),
        (false, Some(hint)) => error.hint(hint),
        (false, None) => error.hint("run migctl gpus to see the GPUs"),
    }
}
