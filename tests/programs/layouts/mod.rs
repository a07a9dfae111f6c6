//! MIG layouts beside mig-parted 0.10.0 and releases. Sessions have the rest of apply, assert and export.

mod agrees;
mod draw;
pub mod leases;
mod oracle;
mod ours;
mod waiting;
