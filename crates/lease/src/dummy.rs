//! A second kind of resource and a second kind of holder. They prove that one fits: they go through create,
//! kill, gc and release like the first.

use crate::error::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::PathBuf;

/// Hardware: a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    pub gpu_uuid: crate::model::GpuUuid,
    pub file: PathBuf,
}

impl Resource {
    pub(crate) fn create(&self) -> Result<()> {
        std::fs::write(&self.file, "").context(|| format!("create {}", self.file.display()))
    }

    pub(crate) fn exists(&self) -> bool {
        self.file.exists()
    }

    /// Destroys the hardware and confirms its end. A folder in its place stands for hardware
    /// that resists.
    pub(crate) fn destroy(&self) -> Result<()> {
        let removed = match std::fs::remove_file(&self.file) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
        removed.context(|| format!("destroy {}", self.file.display()))
    }
}

/// A holder, which lives as long as its file `life` exists. It gives its resource up when `withdrawn`
/// exists, like a claim that only Kubernetes withdraws.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub name: String,
    pub dir: PathBuf,
}

impl Holder {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn sign_of_life(&self) -> Option<String> {
        self.file("life")
            .exists()
            .then(|| "its file exists".to_owned())
    }

    pub(crate) fn withdrawal(&self) -> std::result::Result<String, String> {
        match self.file("withdrawn").exists() {
            true => Ok("it was withdrawn".to_owned()),
            false => Err("nobody withdrew it".to_owned()),
        }
    }

    pub(crate) fn after_release(&self) -> Result<()> {
        let file = self.file("released");
        std::fs::write(&file, "").context(|| format!("write {}", file.display()))
    }
}
