//! Leases of MIG slices, shares and whole GPUs: placement, driver and ledger of one machine, without any OCI type.
//!
//! # Model
//!
//! An [*instance*](store::Instance) is hardware that runmig made or adopted, a MIG slice: a GPU instance with
//! one compute instance that fills it. A [*lease*](store::Lease) is a container's hold on an instance. Each
//! is a record of the ledger, a state directory that lives for one boot. Several leases may name one
//! instance, and an idle instance has none.
//!
//! - [`Leases::acquire`] journals each lease, creates the instances, and returns *creating* leases.
//!   Without room it collects, then waits in the queue for as long as the request allows.
//! - [`Leases::started`] and [`Leases::ready`] record the container's processes.
//! - [`Leases::release_unless`] destroys an instance and removes its lease only after the driver
//!   confirms that the instance is gone. A failure leaves the instance *quarantined*.
//! - [`Leases::gc`] releases the leases of containers that ended without a release.
//! - [`Inventory`] is the driver, the ledger and the queue at one moment. [`what_if`] answers a request
//!   from it without a write.
//!
//! A kill at any point leaves a record from which the next process goes on. Locks are files of the state
//! directory, so any number of processes may use one ledger.
//!
//! The caller makes the containers and implements [`Bundles`], by which a release restores `config.json`.
//! A caller without bundles passes [`NoBundles`].
//!
//! # Example
//!
//! A container gets a slice of a simulated GPU and releases it.
//!
//! ```
//! use runmig_lease::config::Config;
//! use runmig_lease::gpu::Queries;
//! use runmig_lease::model::Cgroup;
//! use runmig_lease::store::{Container, Key};
//! use runmig_lease::{Leases, NoBundles, Patience, Returned, request};
//!
//! # use std::path::{Path, PathBuf};
//! # /// Makes a machine with one H100 in MIG mode, and returns its driver library.
//! # fn simulate(machine: &Path) -> std::io::Result<PathBuf> {
//! #     use nvml_sim::engine::{Machine, Mode, Model, NewGpu};
//! #     let model = Model::find("h100-80gb").expect("the simulation knows the model");
//! #     let gpu = NewGpu { model, floor_swept: false, mode: Mode::On };
//! #     let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
//! #     let target = target.unwrap_or(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
//! #     let built = ["debug", "debug/deps", "release", "release/deps"]
//! #         .map(|folder| target.join(folder).join("libnvml_sim.so"));
//! #     let time = |file: &PathBuf| file.metadata().ok()?.modified().ok();
//! #     let built = built.into_iter().filter(|file| time(file).is_some()).max_by_key(time);
//! #     let built = built.expect("cargo build -p nvml-sim makes the library");
//! #     let library = machine.join("lib/libnvidia-ml.so.1");
//! #     std::fs::create_dir_all(machine.join("lib"))?;
//! #     std::fs::copy(built, &library)?;
//! #     nvml_sim::state::create(machine, &Machine::new("example", &[gpu]))?;
//! #     Ok(library)
//! # }
//! let dir = tempfile::tempdir()?;
//! let machine = dir.path().join("machine");
//! let mut config = Config::default();
//! config.driver.library = simulate(&machine)?;
//! config.driver.root = machine;
//! config.state_dir = dir.path().join("state");
//!
//! let leases = Leases::open(&config, Box::new(NoBundles))?;
//! let annotations = [(request::SLICE.to_owned(), "1g.10gb".to_owned())];
//! let request = request::parse(&annotations)?.expect("the annotations request a slice");
//! let holder = Container {
//!     key: Key::new("/run/runc".into(), "train".to_owned()),
//!     ..Container::default()
//! };
//! let cgroup = Cgroup { names: vec!["train".to_owned()], path: None };
//!
//! let acquired = leases.acquire(holder, &request, cgroup)?;
//! let slice = acquired.leases[0].instance.slice().expect("the request is for a slice");
//! assert_eq!(slice.profile, "1g.10gb");
//!
//! let driver = runmig_lease::driver(&config);
//! let exists = || -> Result<bool, Box<dyn std::error::Error>> {
//!     let instances = driver.instances_of(&slice.gpu_uuid, slice.profile_id)?;
//!     Ok(instances.iter().any(|instance| Some(instance.id) == slice.gpu_instance))
//! };
//! assert!(exists()?);
//!
//! // No sign of life speaks against the release: this caller has started no container.
//! let end = leases.release_unless(&acquired.leases[0], Patience::default(), |_| None)?;
//! assert_eq!(end, Returned::Yes);
//! assert!(!exists()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Floors
//!
//! An import points down:
//!
//! ```text
//! allocate      a create: admit, plan, reserve, provision
//! queue         waits for room, and says why it woke
//! reclaim       release, destroy, collect
//! inventory     driver, ledger and queue at one moment
//! leases        Leases: what an operation works with
//! idle, draft, refusal, bundles
//! ```

#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

// The GPU models of testkit name this crate as its users do.
#[cfg(test)]
extern crate self as runmig_lease;

/// Makes an array of a table's rows, each a tuple: `GIVEN, GIVEN => EXPECTED;`.
#[cfg(test)]
macro_rules! rows {
    ($($($given:expr),+ => $expected:expr;)+) => {[$(($($given),+, $expected)),+]};
}

mod allocate;
mod apply;
mod bundles;
pub mod cdi;
pub mod config;
mod cordons;
pub mod counters;
mod draft;
pub mod driver_files;
pub mod effect;
pub mod error;
pub mod events;
pub mod files;
pub mod finding;
pub mod framed;
#[doc(hidden)]
pub mod fuzzing;
pub mod gpu;
mod idle;
mod inventory;
pub mod known_gpus;
pub mod layout;
mod leases;
mod limit;
pub mod log;
pub mod model;
mod mps;
mod observer;
pub mod paths;
pub mod placement;
pub mod policy;
pub mod process;
pub mod programs;
mod queue;
mod reclaim;
pub mod refusal;
pub mod request;
pub mod store;
pub mod trust;
mod view;

pub use allocate::{Acquired, ClaimNews, ClaimPlace, MissingLimit, POD_PATIENCE, levels, what_if};
pub use apply::{Applied, ApplyOptions, Made, PlannedInstance, PlannedMode};
pub use bundles::{Author, Bundles, NoBundles};
pub use cordons::MAX_REASON;
pub use inventory::{
    GpuBooking, GpuParts, GpuState, Inventory, LeaseUse, ObservedShare, SliceView, observe, uses,
};
pub use leases::{Leases, driver};
pub use reclaim::liveness::{Liveness, UNSEEN_HINT, unseen};
pub use reclaim::lost_leases::BundleAccount;
pub use reclaim::{Finding, Outcome, Patience, Repair, Returned};
pub use view::{DaemonView, LeaseView};
