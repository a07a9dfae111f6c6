//! News about the work on a claim, for people.

use crate::model::Placement;

/// An event in the work on one device of a claim that its user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimNews {
    /// The promise is at another place of the profile than the device names.
    Moved {
        /// The new place.
        to: Placement,
        /// The holder of the device's place, in words.
        by: String,
    },
    /// The work waits for an obstacle that passes by itself.
    Waits {
        /// The obstacle, in words.
        by: String,
    },
}

/// A listener to news. It must not block.
pub(crate) type Hear<'a> = &'a dyn Fn(ClaimNews);
