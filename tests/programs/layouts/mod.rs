//! The verbs of MIG layouts, against mig-parted 0.10.0 and on bad input.

mod agrees;
mod apply;
mod bad_input;
mod draw;
mod figures;
mod growing;
mod holds;
mod hooks;
mod killed;
mod leases;
mod modes;
mod options;
mod oracle;
mod ours;
mod plan;
mod waiting;
