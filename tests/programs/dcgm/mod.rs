//! Job files and reloads of dcgm-exporter.

mod job_files;
mod reload;
