//! Real runc, crun, podman, containerd, CRI-O and docker.

mod args_real;
mod around;
mod by_device;
mod course;
mod device_nodes;
mod driver_files;
mod driver_level;
mod dying;
mod e2e_crun;
mod e2e_crun_new;
mod e2e_nvidia_runtime;
mod e2e_podman;
mod e2e_runc;
mod e2e_runc_new;
mod engine_cri;
mod engine_docker;
mod escapes;
mod first_slice;
mod mps;
mod recipes;
mod soak;
