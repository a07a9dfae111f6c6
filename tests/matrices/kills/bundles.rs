//! `src/bundles.rs` and `src/spec` of runmig over the package that tells of its effects.
#![allow(dead_code)]

#[path = "../../../src/bundles.rs"]
pub mod bundles;
#[path = "../../../src/spec/mod.rs"]
pub mod spec;
