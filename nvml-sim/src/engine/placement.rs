use serde::{Deserialize, Serialize};

/// A run of slices: memory slices of a GPU, or compute slices of a GPU instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Deserialize, Serialize)]
pub struct Placement {
    pub start: u32,
    pub size: u32,
}

impl Placement {
    pub fn end(self) -> u32 {
        self.start + self.size
    }

    pub fn overlaps(self, other: Placement) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// Returns the driver's place for an instance without a requested one: the one of `candidates` that
/// makes the fewest `open` spans impossible, the lowest of several such.
///
/// `open` has a span for every (profile, placement) pair that is possible now.
pub fn choose(
    candidates: impl Iterator<Item = Placement>,
    open: &[Placement],
) -> Option<Placement> {
    candidates.min_by_key(|c| (open.iter().filter(|o| o.overlaps(*c)).count(), c.start))
}
