//! One specification, and what a container takes of it.

use super::{Edits, GENERATE, Mount, Written, is_libcuda};
use crate::error::{Error, Result};
use crate::paths::LIBRARIES;
use crate::process;
use std::path::{Path, PathBuf};

/// The kind that `nvidia-ctk` writes.
const KIND: &str = "nvidia.com/gpu";

/// The device that stands for every GPU.
const ALL: &str = "all";

/// A specification of NVIDIA's.
#[derive(Clone, Debug, PartialEq)]
pub struct Specification {
    /// The file.
    pub file: PathBuf,
    pub(super) kind: String,
    /// The edits at the top, for every container.
    common: Edits,
    /// The edits of devices by the devices' names.
    devices: Vec<(String, Edits)>,
}

impl Specification {
    pub(super) fn new(file: PathBuf, written: Written) -> Result<Self> {
        let devices = written.devices.into_iter().map(|device| {
            let edits = device.container_edits.unwrap_or_default().checked()?;
            Ok((device.name, edits))
        });
        Ok(Specification {
            file,
            kind: written.kind,
            common: written.container_edits.unwrap_or_default().checked()?,
            devices: devices.collect::<Result<_>>()?,
        })
    }

    /// Returns it with the devices alone that bring libcuda; none where the top has it. Returns none if nothing in it has
    /// libcuda.
    pub(super) fn with_libcuda(&self, is_there: &dyn Fn(&Path) -> bool) -> Option<Self> {
        let is_common = self.common.has_libcuda(is_there);
        let mut this = self.clone();
        this.devices
            .retain(|(_, edits)| !is_common && edits.has_libcuda(is_there));
        (is_common || !this.devices.is_empty()).then_some(this)
    }

    /// Adds the devices of another file of the same folder and kind.
    pub(super) fn join(&mut self, other: Specification) -> Result<()> {
        let differs = |theirs: &(String, Edits)| {
            let mut mine = self.devices.iter();
            mine.any(|my| my.0 == theirs.0 && my != theirs)
        };
        if self.common != other.common || other.devices.iter().any(differs) {
            return Err(Error::new(format!(
                "CDI specifications {} and {} of kind {} differ",
                self.file.display(),
                other.file.display(),
                self.kind
            ))
            .hint("keep one of them"));
        }
        self.devices.extend(other.devices);
        Ok(())
    }

    /// Checks that the node's file systems answer for all that it names, so that no later look waits without end.
    pub(super) fn answers(&self) -> Result<()> {
        let edits = { self.devices.iter() }.map(|(_, edits)| edits);
        let edits = edits.chain([&self.common]);
        let sources = edits.flat_map(|edits| {
            let mounts = edits.mounts.iter().map(|mount| mount.host_path.as_path());
            mounts.chain(edits.hooks.iter().map(|hook| hook.path.as_path()))
        });
        let Some(path) = process::unanswered(sources) else {
            return Ok(());
        };
        let (file, path) = (self.file.display(), path.display());
        Err(Error::new(format!(
            "cannot use CDI specification {file}: the file system of {path} does not answer"
        ))
        .hint("bring its server back, or unmount it"))
    }

    /// Returns all edits that a container may get.
    pub fn each(&mut self) -> impl Iterator<Item = &mut Edits> {
        let devices = self.devices.iter_mut().map(|(_, edits)| edits);
        devices.chain([&mut self.common])
    }

    /// Returns the edits for a container that has these GPUs, by their indexes and UUIDs: those at the top, and those of
    /// the device `all`, else of each GPU. A GPU that is not in the file has the driver of one that is.
    pub fn edits(&self, gpus: &[(u32, &str)]) -> Edits {
        let named = |name: &str| { self.devices.iter() }.find(|(its, _)| its == name);
        let own = |(index, uuid): &(u32, &str)| {
            let names = [(*uuid).to_owned(), index.to_string(), format!("gpu{index}")];
            names.iter().find_map(|name| named(name))
        };
        let mut chosen: Vec<_> = match named(ALL) {
            Some(all) => vec![all],
            None => gpus.iter().filter_map(own).collect(),
        };
        if chosen.is_empty() {
            chosen.extend(self.devices.first());
        }
        let mut edits = self.common.clone();
        for (_, its) in chosen {
            edits.add(its);
        }
        edits
    }

    /// Returns the command that writes the file anew, or one that is preferred to it.
    pub fn command(&self) -> String {
        match self.kind == KIND {
            true => command(&self.file),
            false => GENERATE.to_owned(),
        }
    }
}

/// Returns the command that writes a file of NVIDIA's anew.
pub(super) fn command(file: &Path) -> String {
    let format = match file.extension() {
        Some(json) if json == "json" => "--format=json ",
        _ => "",
    };
    format!(
        "nvidia-ctk cdi generate {format}--output={}",
        file.display()
    )
}

impl Edits {
    /// Returns whether a mount brings libcuda: the library, or a folder that holds it.
    fn has_libcuda(&self, is_there: &dyn Fn(&Path) -> bool) -> bool {
        let is_file = |mount: &Mount| is_libcuda(&mount.container_path);
        let holds = |mount: &Mount| {
            // A folder of libraries, or the root of a driver.
            let mut folders = [""].iter().chain(&LIBRARIES);
            folders.any(|folder| is_there(&mount.host_path.join(folder).join("libcuda.so.1")))
        };
        self.mounts.iter().any(is_file) || self.mounts.iter().any(holds)
    }

    /// Adds what another device's edits have beside these.
    fn add(&mut self, other: &Edits) {
        fn join<T: Clone + PartialEq>(mine: &mut Vec<T>, theirs: &[T]) {
            for one in theirs {
                if !mine.contains(one) {
                    mine.push(one.clone());
                }
            }
        }
        join(&mut self.env, &other.env);
        join(&mut self.mounts, &other.mounts);
        join(&mut self.hooks, &other.hooks);
        join(&mut self.additional_gids, &other.additional_gids);
    }
}
