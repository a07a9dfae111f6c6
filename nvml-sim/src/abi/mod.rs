//! NVML's C interface.
//!
//! Every exported function is written with [`nvml!`], which turns a body that returns
//! `Result<(), Code>` into a C function that counts, traces, fails and dies as `DIR` demands.

mod compute_instance;
mod device;
mod device_memory;
mod events;
mod gpu_instance;
mod guard;
mod handle;
mod health;
mod memory_limits;
mod mig_device;
mod mig_mode;
mod pointers;
mod processes;
mod sensors;
mod session;
mod system;
mod topology;
pub mod types;
mod unsupported;

pub use session::machine_dir;

/// Defines exported functions, and the list of their names. One body may serve two versions:
/// `fn nvmlX(…) as nvmlX_v2 {…}`.
macro_rules! nvml {
    ($(fn $name:ident $args:tt $(as $alias:ident)? $body:block)*) => {
        pub(super) const FUNCTIONS: &[&str] =
            &[$(stringify!($name) $(, stringify!($alias))?),*];
        $(
            $crate::abi::nvml_function! { $name $args $body }
            $($crate::abi::nvml_function! { $alias $args $body })?
        )*
    };
}
pub(crate) use nvml;

macro_rules! nvml_function {
    ($name:ident ($call:pat $(, $arg:ident: $ty:ty)* $(,)?) $body:block) => {
        // SAFETY: NVML's own names; no other library of a process defines them.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name($($arg: $ty),*) -> u32 {
            $crate::abi::guard::call(
                stringify!($name),
                |$call: &$crate::abi::guard::Call| -> Result<(), $crate::engine::Code> { $body },
            )
        }
    };
}
pub(crate) use nvml_function;

/// The names of all functions that can be made to fail.
pub fn functions() -> impl Iterator<Item = &'static str> {
    [
        session::INIT_FUNCTIONS,
        session::FUNCTIONS,
        system::FUNCTIONS,
        device::FUNCTIONS,
        device_memory::FUNCTIONS,
        memory_limits::FUNCTIONS,
        mig_mode::FUNCTIONS,
        mig_device::FUNCTIONS,
        gpu_instance::FUNCTIONS,
        compute_instance::FUNCTIONS,
        processes::FUNCTIONS,
        sensors::FUNCTIONS,
        events::FUNCTIONS,
        topology::FUNCTIONS,
        health::FUNCTIONS,
        unsupported::FUNCTIONS,
    ]
    .into_iter()
    .flatten()
    .copied()
}
