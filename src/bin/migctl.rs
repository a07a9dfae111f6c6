//! The operator's tool: see `runmig::cli`.
fn main() {
    std::process::exit(runmig::cli::main())
}
