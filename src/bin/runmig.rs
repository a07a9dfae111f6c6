//! The OCI runtime: see `runmig::runtime`.
fn main() {
    std::process::exit(runmig::runtime::main())
}
