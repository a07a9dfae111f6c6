//! MIG layouts: apply, assert and export, beside mig-parted 0.10.0, leases, processes and kills.

mod agrees;
mod bad_input;
mod draw;
mod holds;
mod killed;
pub mod leases;
mod modes;
mod options;
mod oracle;
mod ours;
mod waiting;
