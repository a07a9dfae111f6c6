//! The MPS daemon of one container: NVIDIA's control program, its directories, its cgroup and its limit.
//!
//! ```text
//! <state>/mps/<lease>/pipes     CUDA_MPS_PIPE_DIRECTORY: the daemon's sockets, for root alone
//! <state>/mps/<lease>/door      nothing but a hard link to pipes/control: the container's /tmp/nvidia-mps
//! <state>/mps/<lease>/logs      CUDA_MPS_LOG_DIRECTORY
//! <cgroup mount>/runmig-mps-<lease>, in each hierarchy
//! ```
//!
//! A client needs `control` alone. Through `control_privileged`, root of a container could raise the limit. The
//! names carry the id of the lease, so the name of its record is enough to end the daemon.

mod cgroup;
mod launch;
mod program;
mod running;
mod server;

pub(crate) use cgroup::remove_left_over;
pub(crate) use program::{Program, find, place};
pub(crate) use running::{Patience, Talks};
pub(crate) use server::{Order, cut_logs, end, homes, is_there, start};

use crate::model::LeaseId;
use std::path::{Path, PathBuf};

/// The first part of the names of cgroups.
const PREFIX: &str = "runmig-mps-";

/// The longest path of a Unix socket, in bytes, without its NUL.
const MAX_SOCKET_PATH: usize = 107;

/// The names of one daemon: its directories and its cgroup.
#[derive(Debug)]
pub(crate) struct Home {
    folder: PathBuf,
    cgroup: String,
}

impl Home {
    /// Returns the names of the daemon of a lease.
    pub(crate) fn of(state_dir: &Path, lease: &LeaseId) -> Home {
        Home {
            folder: state_dir.join("mps").join(lease.as_str()),
            cgroup: format!("{PREFIX}{lease}"),
        }
    }

    /// Returns the path of the cgroup of a lease's daemon, as `/proc/PID/cgroup` shows it.
    pub(crate) fn cgroup_path_of(lease: &LeaseId) -> String {
        format!("/{PREFIX}{lease}")
    }

    /// Returns the directory that the container gets.
    pub(crate) fn door(&self) -> PathBuf {
        self.folder.join("door")
    }

    fn pipes(&self) -> PathBuf {
        self.folder.join("pipes")
    }

    fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }
}

/// Returns why no daemon can listen below a state directory, if there is one.
pub(crate) fn socket_obstacle(state_dir: &Path) -> Option<String> {
    // An id has 32 digits.
    let longest = Home::of(state_dir, &LeaseId::new("0".repeat(32)));
    let longest = longest.pipes().join("control_privileged");
    let bytes = longest.as_os_str().len();
    (bytes > MAX_SOCKET_PATH).then(|| {
        format!(
            "the path of its socket below {} would have {bytes} bytes, more than {MAX_SOCKET_PATH}: set state_dir to a \
             shorter path",
            state_dir.display()
        )
    })
}
