//! The names of a container: its key in the ledger, and the name that people gave it.

use super::Front;
use crate::spec::Document;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::store::Key;
use runmig_lease::{paths, trust};
use serde::Deserialize;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

/// Returns the key of a container, with the root as the low-level runtime resolves it.
pub fn key(front: &Front<'_>, id: &OsStr) -> Result<Key> {
    let id = id.to_str().ok_or_else(|| {
        Error::new(format!(
            "container id {} is not UTF-8",
            id.to_string_lossy()
        ))
    })?;
    let family = front.runtime.family;
    let cwd = || std::env::current_dir().context(|| "find the working directory");
    let root = match &front.call.root {
        // An engine may call from a folder that is gone, so runmig needs the folder only for a relative root.
        Some(root) if root.is_absolute() => root.clone(),
        Some(root) => front.call.stands_in(family, &cwd()?).join(root),
        None => {
            let euid = nix::unistd::geteuid().as_raw();
            let environment = |name: &str| std::env::var_os(name);
            let in_user_namespace = !runmig_lease::trust::is_host_root();
            let root = family.default_root(&environment, euid, in_user_namespace);
            if root.is_absolute() {
                root
            } else {
                cwd()?.join(root)
            }
        }
    };
    // The root may not exist yet, and its name must be the same before and after.
    Ok(Key::new(paths::resolve(&root), id.to_owned()))
}

/// Longest file name in bytes, on Linux and every file system that a `--root` could be on.
const MAX_NAME: usize = 255;
/// Longest path in bytes, without the NUL.
const MAX_PATH: usize = 4095;
/// Bytes that a low-level runtime adds to a container's folder, with room for the names of versions to come.
const MAX_RECORD: usize = 64;

/// Refuses a container whose record runmig could not look for. The low-level runtime would fail, and runmig
/// could never find out whether the container lives. So runmig would never release the container's slice.
pub fn check(key: &Key) -> Result<()> {
    check_lengths(key)?;
    let folder = key.root.join(&key.id);
    match std::fs::symlink_metadata(&folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e)
            .context(|| {
                let (id, root) = (&key.id, key.root.display());
                format!("look for container {id} below --root {root}")
            })
            .map_err(|e| e.hint("use a --root that is a folder, or that can be made one")),
        _ => Ok(()),
    }
}

fn check_lengths(key: &Key) -> Result<()> {
    let id = key.id.len();
    if id > MAX_NAME {
        return Err(Error::new(format!(
            "cannot create the container: its id has {id} bytes, and a file name {MAX_NAME} at most"
        ))
        .hint("use a shorter id"));
    }
    let longest = key.root.iter().map(OsStr::len).max().unwrap_or_default();
    let whole = key.root.as_os_str().len() + id + MAX_RECORD;
    let too_long = match (longest > MAX_NAME, whole > MAX_PATH) {
        (true, _) => format!("a part of --root has {longest} bytes, and a file name {MAX_NAME}"),
        (_, true) => format!("the path of its record has {whole} bytes, and a path {MAX_PATH}"),
        _ => return Ok(()),
    };
    Err(Error::new(format!(
        "cannot create container {}: {too_long} at most",
        key.id
    ))
    .hint("use a shorter --root"))
}

/// docker's record of a container, with its environment and labels.
const MAX_DOCKERS: u64 = 4 << 20;
/// The files that docker mounts from the folder of its record. A user replaces some of them.
const BESIDE: [&str; 3] = ["hostname", "hosts", "resolv.conf"];

#[derive(Deserialize)]
struct Record {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Name")]
    name: String,
}

/// Returns the name that a user gave a container of podman's or docker's. Neither engine writes it into `config.json`, so runmig
/// reads the engine's record, as far as root alone can write to it. It is for people: no decision depends on it.
///
/// ```text
/// <storage>/<driver>-containers/containers.json    podman: the names of each container
/// <data root>/containers/<id>/config.v2.json       docker: beside the hostname file that the container mounts
/// ```
pub fn given(podmans: Option<String>, config: &Document, id: &str) -> Option<String> {
    podmans
        .or_else(|| docker(config, id))
        .filter(|name| is_name(name))
}

fn docker(config: &Document, id: &str) -> Option<String> {
    let is_its = |folder: &Path| folder.ends_with(Path::new("containers").join(id));
    let folder = config.mounts().iter().find_map(|mount| {
        let file = Path::new(mount.get("source")?.as_str()?);
        let is_beside = BESIDE.iter().any(|name| file.ends_with(name));
        file.parent().filter(|folder| is_beside && is_its(folder))
    })?;
    let text = trust::read_to_string(&folder.join("config.v2.json"), MAX_DOCKERS).ok()?;
    let record: Record = serde_json::from_str(&text).ok()?;
    let name = record.name.strip_prefix('/').unwrap_or(&record.name);
    (record.id == id).then(|| name.to_owned())
}

/// Says whether a text is a name as both engines permit it.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    (1..=128).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const ID: &str = "4f2a9c1d03be";

    /// Returns the name that docker's record gives, written so and mounted from there.
    fn docker_says(record: &str, mounted: &str, mode: u32) -> Option<String> {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("containers").join(ID);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("config.v2.json");
        fs::write(&file, record).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let source = mounted.replace("ROOT", root.path().to_str().unwrap());
        let config = serde_json::json!({"mounts": [{}, {"source": "/x"}, {"source": source}]});
        let config = Document::parse(config.to_string().as_bytes()).unwrap();
        given(None, &config, ID)
    }

    #[test]
    fn reads_name_of_docker() {
        let record = |name: &str| format!(r#"{{"ID":"{ID}","Name":"{name}","Config":{{}}}}"#);
        let file = |name: &str| format!("ROOT/containers/{ID}/{name}");
        let named = |name: &str| docker_says(&record(name), &file("hosts"), 0o600);
        assert_eq!(named("/web").as_deref(), Some("web"));
        assert_eq!(named("db_1.x-2").as_deref(), Some("db_1.x-2"));
        for hostile in [
            "",
            "/",
            "a b",
            "a\\u001b[2J",
            "../x",
            "-x",
            &"x".repeat(129),
        ] {
            assert_eq!(named(hostile), None, "{hostile}");
        }
        let other = record("/web").replace(ID, "000000000000");
        assert_eq!(docker_says(&other, &file("hosts"), 0o600), None);
        assert_eq!(docker_says("{", &file("hosts"), 0o600), None);
        assert_eq!(docker_says(&record("/web"), &file("hosts"), 0o666), None);
        assert_eq!(docker_says(&record("/web"), &file("other"), 0o600), None);
        assert_eq!(docker_says(&record("/web"), "ROOT/hosts", 0o600), None);
    }

    #[test]
    fn reads_name_of_podman() {
        let root = tempfile::tempdir().unwrap();
        let containers = root.path().join("overlay-containers");
        let bundle = containers.join(ID).join("userdata");
        fs::create_dir_all(&bundle).unwrap();
        let write = |names: &str| {
            let text = format!(r#"[{{"id":"x"}},{{"id":"{ID}","names":{names}}}]"#);
            fs::write(containers.join("containers.json"), text).unwrap();
        };
        let config = Document::parse(b"{}").unwrap();
        let name = || given(crate::runtime::podman::look(&bundle).1, &config, ID);
        for (names, wanted) in [
            (r#"["train"]"#, Some("train")),
            (r#"["a.b-c","other"]"#, Some("a.b-c")),
            (r#"["a\u001b[2J"]"#, None),
            ("[]", None),
            ("null", None),
        ] {
            write(names);
            assert_eq!(name().as_deref(), wanted, "{names}");
        }
    }
}
