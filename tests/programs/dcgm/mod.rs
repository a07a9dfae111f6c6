//! Reloads of dcgm-exporter.

mod reload;
