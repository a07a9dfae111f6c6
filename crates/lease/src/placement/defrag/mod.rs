//! The fewest containers to restart for a request to fit: found by exact search (`search`), checked by
//! playing it through (`simulate`), and reported in refusals (`diagnose`).

pub(super) mod diagnose;
pub(super) mod search;
