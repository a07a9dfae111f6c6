//! The Kubernetes DRA driver of one node. docs/dra.md describes it.

fn main() -> std::process::ExitCode {
    runmig_dra::run(std::env::args_os().skip(1))
}
