//! Whether a container lives, and who holds a device: what cannot be found out counts as alive, and
//! nothing that is asked blocks.

#[path = "../faults_support/mod.rs"]
mod faults_support;
#[path = "../support/mod.rs"]
mod support;

mod errnos;
mod holders;
mod hung;
mod namespaces;
