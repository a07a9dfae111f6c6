//! The names that most tests use.

pub use crate::bundle::{Bundle, OPEN, SHOW, bind, nodes, set_env, visible};
pub use crate::faults::strace::{self, settled};
pub use crate::faults::{BIG, SMALL, World};
pub use crate::mounted::Mounted;
pub use crate::process::{
    self, Going, Killed, Said, all_below, children, copy_program, going, in_cgroup, kill, lives,
    move_beside, names_in, said, stands_still, until, with_argument,
};
pub use crate::random::Random;
pub use crate::runtimes::{built, on_path, script};
pub use crate::table;
pub use crate::{Gate, Low, Machine, Podman, Setup};
pub use crate::{
    begins_with, chmod, ends_with, has, lacks, program, repository, skip, skip_until_full, unique,
};
pub use nix::sys::signal::Signal;
pub use nvml_sim::engine::Mode;
pub use nvml_sim::fault::{Moment, Outcome};
pub use serde_json::{Value, json};
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fs::{self, File};
pub use std::io::{self, Write};
pub use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
pub use std::os::unix::process::ExitStatusExt;
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Command, Stdio};
pub use std::time::{Duration, Instant};
pub use tempfile::TempDir;
