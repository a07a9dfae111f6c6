//! The verbs of MIG layouts, against mig-parted 0.10.0 and on bad input.

#[path = "../support/mod.rs"]
mod support;

mod agrees;
mod bad_input;
mod draw;
mod options;
mod oracle;
mod ours;
mod plan;
