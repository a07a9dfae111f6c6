//! Reads the driver's own files from the node's CDI specifications, which `nvidia-ctk cdi generate` and the GPU Operator
//! write.
//!
//! runmig takes mounts, environment, hooks and groups: those at the top of a file, which apply to every device, and
//! those of a device where the top has no libcuda. It ignores the device nodes and takes nodes from the driver root. A
//! specification is out of date after every change of a MIG layout.

use crate::error::{Context, Error, Result};
use crate::paths::{self, LIBRARIES};
use crate::{files, process, trust};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The directories of CDI specifications; the later directory wins.
pub const DIRS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// The command that writes a specification.
pub const GENERATE: &str = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";

/// How to look at the files of the node.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// Says whether the node has a file at a path. A path that cannot be looked at counts as there.
    pub is_there: &'a dyn Fn(&Path) -> bool,
    /// Fails for a program that root should not run.
    pub check_program: &'a dyn Fn(&Path) -> Result<()>,
}

impl Node<'_> {
    /// The node, for a process that sees its files at their own paths.
    pub const HERE: Node<'static> = Node {
        is_there: &paths::is_there,
        check_program: &|path| trust::program(path).map(drop),
    };
}

const LIMIT: u64 = 4 * 1024 * 1024;
const FILES_LIMIT: usize = 256;

/// The lists of hooks.
pub const STAGES: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

/// The start of the names of claims' files, which `runmig-dra` writes into one of the directories.
pub const CLAIM_FILE: &str = "gpu.runmig.dev-";

/// The findings in the CDI directories.
#[derive(Debug, Default)]
pub struct Found {
    /// The specification with libcuda, if there is one.
    pub files: Option<Specification>,
    /// The specifications without libcuda.
    pub without: Vec<PathBuf>,
    /// The files that runmig skipped, with reasons.
    pub skipped: Vec<Error>,
}

/// Looks for libcuda in the specifications of these kinds, the preferred kind first. It skips unreadable files of other
/// vendors. It refuses an unreadable file that could be NVIDIA's, and a directory that users other than root may write,
/// unless another file has libcuda.
///
/// # Errors
/// Two specifications that differ, and one that cannot be used, or names a file system that does not answer.
pub fn read(dirs: &[PathBuf], kinds: &[String], node: Node<'_>) -> Result<Found> {
    let mut found = Found::default();
    let mut refused = None;
    let mut refuse = |found: &mut Found, why: Error| match refused {
        None => refused = Some(why),
        Some(_) => found.skipped.push(why),
    };
    let mut folders = Vec::new();
    for dir in dirs.iter().rev() {
        let mut read = Vec::new();
        for path in files(dir).unwrap_or_else(|why| {
            refuse(&mut found, why);
            Vec::new()
        }) {
            match read_file(&path, kinds) {
                Ok(specification) => read.extend(specification),
                Err(Unusable { why, is_ours: true }) => refuse(&mut found, why),
                Err(Unusable { why, .. }) => found.skipped.push(why),
            }
        }
        folders.push(read);
    }
    for kind in kinds {
        for folder in &folders {
            let mut first: Option<Specification> = None;
            for specification in folder.iter().filter(|one| one.kind == *kind) {
                specification.answers()?;
                match (specification.with_libcuda(node.is_there), &mut first) {
                    (None, _) => found.without.push(specification.file.clone()),
                    (Some(next), Some(first)) => first.join(next)?,
                    (next, first) => *first = next,
                }
            }
            if first.is_some() {
                found.skipped.extend(refused);
                found.files = first;
                return Ok(found);
            }
        }
    }
    match refused {
        Some(why) => Err(why),
        None => Ok(found),
    }
}

/// Returns whether programs of a container find libcuda at a path.
pub fn is_libcuda(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b"libcuda.so")
}

/// Returns the `.json` and `.yaml` files of a directory in the order of names, as CDI's library takes them.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let what = || format!("read CDI directory {}", dir.display());
    let Some(entries) = files::if_there(fs::read_dir(dir)).context(what)? else {
        return Ok(Vec::new());
    };
    trust::folder(dir).context(what)?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.context(what)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_claim = name.starts_with(CLAIM_FILE);
        if !is_claim && path.extension().is_some_and(|e| e == "json" || e == "yaml") {
            files.push(path);
        }
    }
    if files.len() > FILES_LIMIT {
        return Err(Error::new(format!(
            "CDI directory {} has more than {FILES_LIMIT} files",
            dir.display()
        )));
    }
    files.sort();
    Ok(files)
}

/// A file that runmig cannot rely on.
struct Unusable {
    why: Error,
    /// Says whether the name or the text of the file points to NVIDIA.
    is_ours: bool,
}

/// Reads one specification; none of another kind. It follows links. The specification's hooks run as root, so only root may
/// control the target of a link.
fn read_file(path: &Path, kinds: &[String]) -> Result<Option<Specification>, Unusable> {
    let what = || format!("read CDI specification {}", path.display());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_named = name.contains("nvidia");
    let unusable = |why: Error, is_ours: bool| {
        let hint = format!("remove it, or write it anew: {}", command(path));
        let is_told = is_ours && trust::is_host_root();
        let why = if is_told { why.hint(hint) } else { why };
        Unusable { why, is_ours }
    };
    let text = trust::read_to_string(path, LIMIT).context(what);
    let text = text.map_err(|why| unusable(why, is_named))?;
    // An editor of another system may have written it.
    let text = text.trim_start_matches('\u{feff}');
    let written = written(text, path.extension().is_some_and(|e| e == "json"));
    let written = written.context(what).map_err(|why| {
        let is_ours = is_named || kinds.iter().any(|kind| text.contains(kind));
        unusable(why, is_ours)
    })?;
    if written.kind.is_empty() && is_named {
        let none: Result<()> = Err(Error::new("it has no kind")).context(what);
        none.map_err(|why| unusable(why, true))?;
    }
    if !kinds.contains(&written.kind) {
        return Ok(None);
    }
    let checked = written
        .checked(path)
        .because(|| format!("CDI specification {}", path.display()));
    checked.map(Some).map_err(|why| unusable(why, true))
}

/// Parses a specification. JSON is YAML, but the JSON parser is stricter.
fn written(
    text: &str,
    json: bool,
) -> Result<Specification, Box<dyn std::error::Error + Send + Sync>> {
    Ok(if json {
        serde_json::from_str(text)?
    } else {
        serde_yaml_ng::from_str(text)?
    })
}

/// Parses one specification alone. Returns none of another kind.
///
/// # Errors
/// Text that is no specification, and edits that cannot be used.
pub fn parse(text: &str, json: bool, kind: &str) -> Result<Option<Specification>> {
    let written = written(text, json).context(|| "read it")?;
    let is_meant = written.kind == kind;
    { is_meant.then(|| written.checked(Path::new(""))) }.transpose()
}

/// The edits of a container that bring the driver's files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Edits {
    /// Variables in the form `NAME=value`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Mounts of files and directories of the host.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Hooks of the low-level runtime.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Groups of the container's process.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// The file of the host.
    pub host_path: PathBuf,
    /// Its path in the container.
    pub container_path: PathBuf,
    /// The options of the mount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// The type of the mount.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub typ: Option<String>,
}

impl Mount {
    pub(crate) fn is_bind(&self) -> bool {
        matches!(self.typ.as_deref(), None | Some("" | "bind" | "none"))
    }
}

/// A hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// The list of hooks, such as `createContainer`.
    pub hook_name: String,
    /// The program.
    pub path: PathBuf,
    /// The arguments, with the program's name.
    #[serde(default, deserialize_with = "or_default")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The environment.
    #[serde(default, deserialize_with = "or_default")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The longest time in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// Reads a value, which may be null.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl Edits {
    /// Fails for a NUL in a text: some low-level runtimes end a text there, and others do not.
    fn refuse_nul(&self) -> Result<()> {
        fn has_nul(value: &Value) -> bool {
            match value {
                Value::String(text) => text.contains('\0'),
                Value::Array(all) => all.iter().any(has_nul),
                Value::Object(all) => all.values().any(has_nul),
                _ => false,
            }
        }
        let edits = serde_json::to_value(self).context(|| "look for a NUL")?;
        let mut edits = edits.as_object().into_iter().flatten();
        match edits.find(|(_, value)| has_nul(value)) {
            None => Ok(()),
            Some((key, _)) => Err(Error::new(format!("containerEdits.{key} has a NUL"))
                .hint("remove the NUL from the specification")),
        }
    }

    /// Refuses what low-level runtimes understand differently, and drops the root group.
    fn check(&mut self) -> Result<()> {
        self.refuse_nul()?;
        let mut env = self.env.iter();
        if let Some(bad) = env.find(|e| e.find('=').is_none_or(|at| at == 0)) {
            return Err(Error::new(format!(
                "{bad:?} is not an environment variable"
            )));
        }
        let sources = self.mounts.iter().filter(|m| m.is_bind());
        let targets = self.mounts.iter().map(|m| &m.container_path);
        let mut paths = sources.map(|m| &m.host_path).chain(targets);
        if let Some(path) = paths.find(|path| !path.is_absolute()) {
            return Err(Error::new(format!(
                "mount path {} is not absolute",
                path.display()
            )));
        }
        for hook in &self.hooks {
            if !STAGES.contains(&hook.hook_name.as_str()) {
                return Err(Error::new(format!(
                    "{:?} is not a hook name",
                    hook.hook_name
                )));
            }
            if !hook.path.is_absolute() {
                return Err(Error::new(format!(
                    "hook {} is not an absolute path",
                    hook.path.display()
                )));
            }
        }
        // Like CDI's library, runmig adds no process to the root group.
        self.additional_gids.retain(|gid| *gid != 0);
        Ok(())
    }
}

/// The kind that `nvidia-ctk` writes.
const KIND: &str = "nvidia.com/gpu";

/// The device that stands for every GPU.
const ALL: &str = "all";

/// A specification of NVIDIA's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Specification {
    /// The file.
    #[serde(skip)]
    pub file: PathBuf,
    kind: String,
    /// The edits at the top, for every container.
    #[serde(deserialize_with = "or_default")]
    container_edits: Edits,
    #[serde(deserialize_with = "or_default")]
    devices: Vec<Device>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Device {
    name: String,
    #[serde(deserialize_with = "or_default")]
    container_edits: Edits,
}

impl Specification {
    /// Returns the specification of a file, if all of its edits can be used.
    fn checked(mut self, file: &Path) -> Result<Self> {
        self.file = file.to_owned();
        self.container_edits.check()?;
        let mut devices = self.devices.iter_mut();
        devices.try_for_each(|device| device.container_edits.check())?;
        Ok(self)
    }

    /// Returns it with the devices alone that bring libcuda; none where the top has it. Returns none if nothing in it has
    /// libcuda.
    fn with_libcuda(&self, is_there: &dyn Fn(&Path) -> bool) -> Option<Self> {
        let is_common = self.container_edits.has_libcuda(is_there);
        let mut this = self.clone();
        this.devices
            .retain(|device| !is_common && device.container_edits.has_libcuda(is_there));
        (is_common || !this.devices.is_empty()).then_some(this)
    }

    /// Adds the devices of another file of the same folder and kind.
    fn join(&mut self, other: Specification) -> Result<()> {
        let differs = |theirs: &Device| {
            let mut mine = self.devices.iter();
            mine.any(|my| my.name == theirs.name && my != theirs)
        };
        if self.container_edits != other.container_edits || other.devices.iter().any(differs) {
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
    fn answers(&self) -> Result<()> {
        let edits = { self.devices.iter() }.map(|device| &device.container_edits);
        let edits = edits.chain([&self.container_edits]);
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
        let devices = self
            .devices
            .iter_mut()
            .map(|device| &mut device.container_edits);
        devices.chain([&mut self.container_edits])
    }

    /// Returns the edits for a container that has these GPUs, by their indexes and UUIDs: those at the top, and those of
    /// the device `all`, else of each GPU. A GPU that is not in the file has the driver of one that is.
    pub fn edits(&self, gpus: &[(u32, &str)]) -> Edits {
        let named = |name: &str| { self.devices.iter() }.find(|device| device.name == name);
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
        let mut edits = self.container_edits.clone();
        for device in chosen {
            edits.add(&device.container_edits);
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
fn command(file: &Path) -> String {
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
