//! The cases that hold for every low-level runtime.

pub mod asking;
pub mod cgroups;
pub mod failing;
pub mod foreground;
pub mod life;
pub mod passing;
pub mod updating;
