//! A death, an error or odd surroundings at every step.

mod crash_matrix;
mod error_matrix;
mod read_errnos;
mod world_matrix;
