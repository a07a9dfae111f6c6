//! Whether a container lives, and who holds a device: what cannot be found out counts as alive, and
//! nothing that is asked blocks.

mod errnos;
mod holders;
mod hung;
mod namespaces;
