//! The hook of containers with a claim: see `runmig::hook::claim`.
fn main() {
    runmig::hook::claim::main();
}
