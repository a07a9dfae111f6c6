//! The driver beside a real API server, in bad conditions: killed at its own system calls and at its calls to the GPU
//! driver. The test takes the kubelet's place.

#[path = "../support/cluster.rs"]
mod cluster;
mod killed;
mod phases;
mod tracer;
