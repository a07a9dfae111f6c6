//! Job files and reloads of dcgm-exporter.

#[path = "../faults_support/mod.rs"]
mod faults_support;
#[path = "../support/mod.rs"]
mod support;

mod job_files;
mod reload;
