//! Gives the shared library the soname under which CUDA's clients look for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // NVML's functions are in a library of their own.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
