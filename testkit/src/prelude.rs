//! The names that most tests use.

pub use crate::bundle::{Bundle, OPEN, SHOW, nodes, visible};
pub use crate::faults::World;
pub use crate::process::{Going, Said, children, going, in_cgroup, kill, lives, said, until};
pub use crate::{Low, Machine, Setup, has, skip, skip_until_full, unique};
pub use serde_json::{Value, json};
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fs;
pub use std::os::unix::fs::{PermissionsExt, symlink};
pub use std::path::{Path, PathBuf};
pub use std::process::{Command, Stdio};
pub use std::time::Duration;
