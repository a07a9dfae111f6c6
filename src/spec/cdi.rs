//! Reads the driver's own files from the node's CDI specification, which `nvidia-ctk cdi generate` writes.
//!
//! runmig takes only the top-level `containerEdits`, which apply to every device: mounts, environment,
//! hooks, groups. It ignores the device nodes and takes nodes from the driver root. A specification is out
//! of date after every change of a MIG layout.

use super::edit::DriverFiles;
use super::hooks::hook;
use oci_spec::runtime::{Mount, MountBuilder};
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::trust;
use serde::Deserialize;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The directories of CDI specifications; the later directory wins.
pub const DIRS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

const KIND: &str = "nvidia.com/gpu";
const LIMIT: u64 = 4 * 1024 * 1024;
const FILES_LIMIT: usize = 256;

const STAGES: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

/// The findings in the CDI directories.
#[derive(Debug, Default)]
pub struct Found {
    /// The driver's files; none without a specification of `nvidia.com/gpu`.
    pub files: Option<DriverFiles>,
    /// The reasons for which runmig skipped files.
    pub skipped: Vec<Error>,
}

impl Found {
    /// Returns the driver's files, or the reason for which there are none.
    pub fn required(self) -> Result<DriverFiles> {
        let missing = || {
            let none = Error::new(format!(
                "cannot find a CDI specification of {KIND} in {}",
                DIRS.join(" or ")
            ));
            let none = none.hint("run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml");
            self.skipped
                .into_iter()
                .fold(none, |e, why| e.and(Some(why)))
        };
        self.files.ok_or_else(missing)
    }
}

/// Reads the driver's files. It skips unreadable files of other vendors. It refuses an unreadable file that
/// could be NVIDIA's, unless another file has the specification. Otherwise a container would start without
/// the driver's files.
pub fn read(dirs: &[&Path]) -> Result<Found> {
    let mut skipped = Vec::new();
    let mut refused = None;
    for dir in dirs.iter().rev() {
        let mut found: Option<(PathBuf, ContainerEdits)> = None;
        for path in files(dir)? {
            let spec = match read_file(&path) {
                Ok(spec) => spec,
                Err(Unusable { why, is_ours: true }) if refused.is_none() => {
                    refused = Some(why);
                    continue;
                }
                Err(Unusable { why, .. }) => {
                    skipped.push(why);
                    continue;
                }
            };
            if spec.kind != KIND {
                continue;
            }
            let edits = spec.container_edits.unwrap_or_default();
            match &found {
                Some((other, same)) if *same != edits => {
                    return Err(Error::new(format!(
                        "CDI specifications {} and {} of kind {KIND} differ",
                        other.display(),
                        path.display()
                    ))
                    .hint("keep one of them"));
                }
                Some(_) => {}
                None => found = Some((path, edits)),
            }
        }
        if let Some((path, edits)) = found {
            let files = edits
                .into_driver_files()
                .because(|| format!("CDI specification {}", path.display()))?;
            skipped.extend(refused);
            return Ok(Found {
                files: Some(files),
                skipped,
            });
        }
    }
    match refused {
        Some(why) => Err(why),
        None => Ok(Found {
            files: None,
            skipped,
        }),
    }
}

/// Returns the `.json` and `.yaml` files of a directory in the order of names, as CDI's library takes them.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let what = || format!("read CDI directory {}", dir.display());
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).context(what),
    };
    trust::folder(dir).context(what)?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.context(what)?.path();
        if path.extension().is_some_and(|e| e == "json" || e == "yaml") {
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

/// Reads one specification. It follows links. The specification's hooks run as root, so only root may
/// control the target of a link.
fn read_file(path: &Path) -> Result<Specification, Unusable> {
    let what = || format!("read CDI specification {}", path.display());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_named = name.contains("nvidia");
    let text = trust::read_to_string(path, LIMIT)
        .context(what)
        .map_err(|why| Unusable {
            why,
            is_ours: is_named,
        })?;
    specification(&text, path.extension().is_some_and(|e| e == "json"))
        .context(what)
        .map_err(|why| Unusable {
            why,
            is_ours: is_named || text.contains(KIND),
        })
}

/// Parses a specification. JSON is YAML, but the JSON parser is stricter.
fn specification(
    text: &str,
    json: bool,
) -> Result<Specification, Box<dyn std::error::Error + Send + Sync>> {
    Ok(if json {
        serde_json::from_str(text)?
    } else {
        serde_yaml_ng::from_str(text)?
    })
}

/// Parses one specification alone. Returns none for another vendor's.
pub(crate) fn parse(text: &str, json: bool) -> Result<Option<DriverFiles>> {
    let spec = specification(text, json).context(|| "read it")?;
    if spec.kind != KIND {
        return Ok(None);
    }
    let edits = spec.container_edits.unwrap_or_default();
    edits.into_driver_files().map(Some)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Specification {
    #[serde(default)]
    kind: String,
    container_edits: Option<ContainerEdits>,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct ContainerEdits {
    env: Option<Vec<String>>,
    mounts: Option<Vec<CdiMount>>,
    hooks: Option<Vec<CdiHook>>,
    additional_gids: Option<Vec<u32>>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct CdiMount {
    host_path: PathBuf,
    container_path: PathBuf,
    options: Option<Vec<String>>,
    #[serde(rename = "type")]
    typ: Option<String>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct CdiHook {
    hook_name: String,
    path: PathBuf,
    args: Option<Vec<String>>,
    env: Option<Vec<String>>,
    timeout: Option<i64>,
}

impl ContainerEdits {
    /// Fails for a NUL in a text: some low-level runtimes end a text there, and others do not.
    fn refuse_nul(&self) -> Result<()> {
        let path = |path: &PathBuf| path.as_os_str().as_encoded_bytes().contains(&0);
        let texts = |texts: &Option<Vec<String>>| texts.iter().flatten().any(|t| t.contains('\0'));
        let mounts = self.mounts.iter().flatten().any(|m| {
            let typ = m.typ.as_ref().is_some_and(|t| t.contains('\0'));
            path(&m.host_path) || path(&m.container_path) || texts(&m.options) || typ
        });
        let mut hooks = self.hooks.iter().flatten();
        let hooks = hooks.any(|h| path(&h.path) || texts(&h.args) || texts(&h.env));
        for (has_nul, key) in [
            (texts(&self.env), "env"),
            (mounts, "mounts"),
            (hooks, "hooks"),
        ] {
            if has_nul {
                return Err(Error::new(format!("containerEdits.{key} has a NUL"))
                    .hint("remove the NUL from the specification"));
            }
        }
        Ok(())
    }

    fn into_driver_files(self) -> Result<DriverFiles> {
        self.refuse_nul()?;
        let env = self.env.unwrap_or_default();
        if let Some(bad) = env.iter().find(|e| e.find('=').is_none_or(|at| at == 0)) {
            return Err(Error::new(format!("{bad:?} is no environment variable")));
        }
        let mounts = self.mounts.unwrap_or_default().into_iter();
        let hooks = self.hooks.unwrap_or_default().into_iter();
        let gids = self.additional_gids.unwrap_or_default().into_iter();
        Ok(DriverFiles {
            env,
            mounts: mounts.map(CdiMount::into_oci).collect::<Result<_>>()?,
            hooks: hooks
                .map(|h| {
                    if !STAGES.contains(&h.hook_name.as_str()) {
                        return Err(Error::new(format!("{:?} is no hook name", h.hook_name)));
                    }
                    let (args, env) = (h.args.unwrap_or_default(), h.env.unwrap_or_default());
                    Ok((h.hook_name, hook(&h.path, args, env, h.timeout)?))
                })
                .collect::<Result<_>>()?,
            // Like CDI's library, runmig adds no process to the root group.
            additional_gids: gids.filter(|gid| *gid != 0).collect(),
        })
    }
}

impl CdiMount {
    fn into_oci(self) -> Result<Mount> {
        for path in [&self.host_path, &self.container_path] {
            if !path.is_absolute() {
                return Err(Error::new(format!(
                    "mount path {} is not absolute",
                    path.display()
                )));
            }
        }
        let what = || format!("mount {}", self.container_path.display());
        let mut mount = MountBuilder::default()
            .destination(&self.container_path)
            .source(&self.host_path)
            .build()
            .context(what)?;
        mount.set_options(self.options);
        mount.set_typ(self.typ);
        Ok(mount)
    }
}
