//! Runs everything that makes, uses or releases a slice in every kind of surroundings: other
//! namespaces, odd file systems, poor processes, old kernels, unruly neighbours. The crash and the error
//! matrix vary *when* an operation is killed and *what* the driver answers; this one varies *where* it
//! runs. `worlds` lists the surroundings, a line each.

mod administrator;
mod call;
mod cell;
mod enter;
mod files;
mod hung;
mod kernel;
mod neighbours;
mod node;
mod operations;
mod processes;
mod worlds;
