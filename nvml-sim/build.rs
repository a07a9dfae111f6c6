//! Gives the shared library the soname under which NVML's clients look for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // Its statics would stay in memory after each session, and be made anew for the next.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
