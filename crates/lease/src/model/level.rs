//! The levels at which the memory limit of a share holds.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The level at which the memory limit of a share holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The driver limits all processes of the container together.
    Driver,
    /// An MPS daemon of the container's own limits each of its processes.
    Mps,
    /// Nothing limits the container. The memory is booked.
    None,
}

impl Level {
    /// Returns the name, as the configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Driver => "driver",
            Level::Mps => "mps",
            Level::None => "none",
        }
    }

    /// Returns the promise to a container with a share, in the words of docs/sharing.md.
    pub fn promise(self) -> &'static str {
        match self {
            Level::Driver => {
                "all processes of the container together get no more device memory than the share"
            }
            Level::Mps => {
                "each process of the container gets no more device memory than the share, unless it changes its MPS \
                 settings or bypasses MPS"
            }
            Level::None => "nothing; the memory is booked",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
