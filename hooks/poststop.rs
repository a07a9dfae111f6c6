//! The poststop hook: see `runmig::hook`.
fn main() {
    runmig::hook::main();
}
