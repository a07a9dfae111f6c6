//! Reads podman's records of a container: whether podman made it, and the annotations of its image. From 4.5.1 on podman
//! itself keeps these apart, so the image does not matter.
//!
//! ```text
//! <root>/<driver>-containers/containers.json, volatile-containers.json   each container's image
//! <root>/<driver>-containers/<id>/userdata                              its bundle
//! <root>/<driver>-images/<image>/manifest, =<base64 of manifest-…>       the image's manifests, or below a folder of
//!                                                                       `additionalimagestores` in storage.conf
//! ```
//!
//! podman replaces these files atomically, so a reader needs no lock. CRI-O keeps its bundles below another
//! directory, which has no such records.

use crate::spec::is_same;
use runmig_lease::error::{Context, Error, Result};
use runmig_lease::programs::podman_version;
use runmig_lease::request::{Engine, Image};
use runmig_lease::{files, process, trust};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RECORDS: [&str; 2] = ["containers.json", "volatile-containers.json"];
/// About 1 KiB a container.
const MAX_RECORDS: u64 = 64 << 20;
/// Longest manifest that podman itself reads.
const MAX_MANIFEST: u64 = 4 << 20;
/// Most files of one image; each pull of the same configuration with another manifest adds one.
const MAX_FILES: usize = 256;
const MAX_COMMAND: u64 = 1 << 20;
const MAX_STORAGE_CONF: u64 = 1 << 20;
/// The first podman that keeps an image's annotations apart.
const APART: (u32, u32, u32) = (4, 5, 1);
/// For `podman --version`, which takes some 0.1 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// Begins the name of a manifest's file by digest: the base64 of `manifest-`.
const BY_DIGEST: &str = "=bWFuaWZlc3Qt";

/// Returns the engine that made a container, and podman's name of it, from the canonical path of its bundle.
pub fn look(bundle: &Path) -> (Engine, Option<String>) {
    let (container, images) = match container_of(bundle) {
        Ok(Some(found)) => found,
        Ok(None) => return (Engine::Other, None),
        Err(why) => return (Engine::Podman(Image::Unknown(why)), None),
    };
    let annotations = image_annotations(&container.image, &images);
    let carries_none = annotations.as_ref().is_ok_and(Vec::is_empty);
    let image = match annotations {
        _ if !carries_none && is_apart() => Image::Carries(Vec::new()),
        annotations => annotations.map_or_else(Image::Unknown, Image::Carries),
    };
    let name = container.names.into_iter().flatten().next();
    (Engine::Podman(image), name)
}

/// Says whether a name is that of a container by which podman holds a pod together, and which runs nothing of the user's:
/// 12 digits of the pod's id with `-infra`, or of a file of Kubernetes with `-service`.
pub fn is_its_own(name: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let id = name
        .strip_suffix("-infra")
        .or(name.strip_suffix("-service"));
    id.is_some_and(|id| id.len() == 12 && id.chars().all(is_hex))
}

/// Returns the command of conmon, which calls runmig.
fn parent_command() -> String {
    let file = format!("/proc/{}/cmdline", nix::unistd::getppid());
    files::read_text(file.as_ref(), MAX_COMMAND).unwrap_or_default()
}

/// Says whether the podman that made the container keeps an image's annotations apart from the user's.
fn is_apart() -> bool {
    let said = podman_of(&parent_command()).and_then(|podman| {
        let (program, _) = trust::program(Path::new(podman)).ok()?;
        process::output(&program, &["--version"], PATIENCE).ok()
    });
    said.and_then(|said| podman_version(&said))
        .is_some_and(|version| version >= APART)
}

/// Returns the path of podman in the command of conmon, which calls it after the end of the container.
fn podman_of(conmon: &str) -> Option<&str> {
    let mut words = conmon.split('\0');
    words.find(|word| *word == "--exit-command")?;
    words.next()
}

/// Returns the folders in which podman looks for an image that its own store lacks.
fn additional_stores() -> Vec<PathBuf> {
    let files = [
        "/etc/containers/storage.conf",
        "/usr/share/containers/storage.conf",
    ];
    let text = files
        .iter()
        .find_map(|file| read(file.as_ref(), MAX_STORAGE_CONF).ok());
    let table: toml::Table = text.and_then(|text| text.parse().ok()).unwrap_or_default();
    let options = table
        .get("storage")
        .and_then(|storage| storage.get("options"));
    let stores = options.and_then(|options| options.get("additionalimagestores")?.as_array());
    let stores = stores.into_iter().flatten().filter_map(toml::Value::as_str);
    let stores = stores.filter(|store| store.starts_with('/'));
    stores.map(PathBuf::from).collect()
}

/// A container's record.
#[derive(Deserialize)]
struct Container {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    image: String,
    #[serde(default)]
    metadata: String,
}

/// Returns the container's folder, the folder of all, and that of its images, if the bundle lies as in containers/storage.
fn folders(bundle: &Path) -> Option<(&Path, &Path, PathBuf)> {
    let container = { bundle.parent() }.filter(|_| bundle.ends_with("userdata"))?;
    let containers = container.parent()?;
    let name = containers.file_name()?.to_str()?;
    let driver = name.strip_suffix("-containers").filter(|d| !d.is_empty())?;
    let images = containers.with_file_name(format!("{driver}-images"));
    Some((container, containers, images))
}

/// Returns podman's record of a bundle's container, and the folder of its images. Returns `None` for a container without
/// records beside it, and for a container of CRI-O.
fn container_of(bundle: &Path) -> Result<Option<(Container, PathBuf)>> {
    let Some((folder, containers, images)) = folders(bundle) else {
        return Ok(None);
    };
    let id = folder.file_name().unwrap_or_default();
    let mut is_kept = false;
    for file in RECORDS.map(|name| containers.join(name)) {
        if matches!(file.symlink_metadata(), Err(e) if e.kind() == std::io::ErrorKind::NotFound) {
            continue;
        }
        is_kept = true;
        let text = read(&file, MAX_RECORDS)?;
        let all: Vec<Container> =
            serde_json::from_str(&text).context(|| format!("read {}", file.display()))?;
        if let Some(container) = all.into_iter().find(|c| id == c.id.as_str()) {
            // CRI-O writes the pod into it, and podman never does.
            let metadata: Value = serde_json::from_str(&container.metadata).unwrap_or_default();
            let is_crio = metadata["pod-id"].is_string();
            return Ok((!is_crio).then_some((container, images)));
        }
    }
    match is_kept {
        false => Ok(None),
        true => Err(Error::new(format!(
            "cannot find container {} in {}",
            id.display(),
            containers.display()
        ))),
    }
}

fn image_annotations(image: &str, images: &Path) -> Result<Vec<(String, String)>> {
    if image.is_empty() {
        return Ok(Vec::new());
    }
    if !image.bytes().all(|c| c.is_ascii_alphanumeric()) {
        return Err(Error::new(format!("{image:?} is not the id of an image")));
    }
    let mut dir = images.join(image);
    if !dir.exists() {
        let stores = additional_stores().into_iter();
        let name = images.file_name().unwrap_or_default();
        let mut others = stores.map(|store| store.join(name).join(image));
        dir = others.find(|other| other.exists()).unwrap_or(dir);
    }
    let what = || format!("read {}", dir.display());
    trust::folder(&dir).context(what)?;
    let mut annotations = Vec::new();
    let mut manifests = 0;
    for entry in std::fs::read_dir(&dir).context(what)? {
        let entry = entry.context(what)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name != "manifest" && !name.starts_with(BY_DIGEST) {
            continue;
        }
        manifests += 1;
        if manifests > MAX_FILES {
            let dir = dir.display();
            let why = format!("{dir} has more than {MAX_FILES} manifests");
            return Err(Error::new(why));
        }
        let file = entry.path();
        let text = read(&file, MAX_MANIFEST)?;
        let manifest: Annotations<true> =
            serde_json::from_str(&text).context(|| format!("read {}", file.display()))?;
        annotations.extend(manifest.0);
    }
    match manifests {
        0 => {
            let dir = dir.display();
            Err(Error::new(format!("cannot find a manifest in {dir}")))
        }
        _ => Ok(annotations),
    }
}

fn read(file: &Path, max: u64) -> Result<String> {
    trust::read_to_string(file, max).context(|| format!("read {}", file.display()))
}

/// The annotations of a manifest, or of its object `annotations`, as podman reads them, with Go's decoder. A key of the manifest
/// matches in any case, and a repeated object is merged. A repeated key keeps all its values.
struct Annotations<const OF_MANIFEST: bool>(Vec<(String, String)>);

impl<'de, const OF_MANIFEST: bool> Deserialize<'de> for Annotations<OF_MANIFEST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Each<const OF_MANIFEST: bool>;
        impl<'de, const OF_MANIFEST: bool> Visitor<'de> for Each<OF_MANIFEST> {
            type Value = Annotations<OF_MANIFEST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(if OF_MANIFEST {
                    "a manifest"
                } else {
                    "annotations"
                })
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if !OF_MANIFEST {
                        let value = map.next_value::<Option<String>>()?;
                        all.push((key, value.unwrap_or_default()));
                    } else if is_same(&key, "annotations") {
                        let its = map.next_value::<Option<Annotations<false>>>()?;
                        all.extend(its.into_iter().flat_map(|its| its.0));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Annotations(all))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ID: &str = "0123abcd";
    const ENCODED: &str = "=bWFuaWZlc3Qtc2hhMjU2OmFi";

    /// podman's storage with one container, whose image has these files.
    struct Storage(tempfile::TempDir);

    impl Storage {
        fn new(files: &[(&str, &str)]) -> Storage {
            let storage = Storage(tempfile::tempdir().unwrap());
            fs::create_dir_all(storage.bundle()).unwrap();
            storage.write("vfs-containers/containers.json", &format!(
                r#"[{{"id":"other","image":""}},{{"id":"{ID}","image":"f00","layer":"l","flags":{{}},"metadata":"{{\"image-id\":\"f00\"}}"}}]"#
            ));
            for (name, text) in files {
                storage.write(&format!("vfs-images/f00/{name}"), text);
            }
            storage
        }

        fn bundle(&self) -> PathBuf {
            let root = fs::canonicalize(self.0.path()).unwrap();
            root.join("vfs-containers").join(ID).join("userdata")
        }

        fn write(&self, name: &str, text: &str) {
            let file = self.0.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }

        #[track_caller]
        fn carries(&self) -> Vec<(String, String)> {
            match look(&self.bundle()).0 {
                Engine::Podman(Image::Carries(annotations)) => annotations,
                other => panic!("{other:?}"),
            }
        }

        #[track_caller]
        fn unknown(&self) -> String {
            match look(&self.bundle()).0 {
                Engine::Podman(Image::Unknown(why)) => why.line(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn knows_podmans_own_containers() {
        for own in ["d7842cd4f705-infra", "0123456789ab-service"] {
            assert!(is_its_own(own), "{own}");
        }
        for users in [
            "infra",
            "-infra",
            "d7842cd4f70-infra",
            "D7842CD4F705-infra",
            "d7842cd4f705-web",
        ] {
            assert!(!is_its_own(users), "{users}");
        }
    }

    #[test]
    fn reads_all_manifests_of_an_image() {
        let storage = Storage::new(&[
            ("manifest", r#"{"schemaVersion":2,"annotations":{"a":"1"}}"#),
            (ENCODED, r#"{"annotations":{"b":"2"},"layers":[]}"#),
            ("=c2hhMjU2OmFi", "no manifest"),
        ]);
        let mut all = storage.carries();
        all.sort();
        assert_eq!(all, [pair("a", "1"), pair("b", "2")]);
    }

    #[test]
    fn reads_manifests_as_go_does() {
        let text =
            r#"{"Annotations":{"a":"1","a":"2"},"annotation\u017f":{"b":null},"annotations":null}"#;
        let all = Storage::new(&[("manifest", text)]).carries();
        assert_eq!(all, [pair("a", "1"), pair("a", "2"), pair("b", "")]);
    }

    #[test]
    fn finds_no_image_without_one() {
        let storage = Storage::new(&[]);
        let records = format!(r#"[{{"id":"{ID}","layer":"l"}}]"#);
        storage.write("vfs-containers/volatile-containers.json", &records);
        storage.write("vfs-containers/containers.json", "[]");
        assert_eq!(storage.carries(), []);
    }

    #[test]
    fn unreadable_records_tell_nothing() {
        let manifest = ("manifest", "{}");
        assert!(Storage::new(&[]).unknown().contains("vfs-images/f00"));
        assert!(
            Storage::new(&[("other", "")])
                .unknown()
                .contains("cannot find a manifest in")
        );
        for text in [
            "",
            "[]",
            "{}{}",
            r#"{"annotations":{"a":1}}"#,
            r#"{"annotations":{"a":"\ud800"}}"#,
        ] {
            let line = Storage::new(&[("manifest", text)]).unknown();
            assert!(line.contains("f00/manifest"), "{text}: {line}");
        }
        let storage = Storage::new(&[manifest]);
        storage.write("vfs-containers/containers.json", "[]");
        assert!(storage.unknown().contains("cannot find container 0123abcd"));
        storage.write("vfs-containers/containers.json", "[");
        assert!(storage.unknown().contains("containers.json"));
        let climbs = format!(r#"[{{"id":"{ID}","image":"../x"}}]"#);
        storage.write("vfs-containers/containers.json", &climbs);
        assert!(storage.unknown().contains("is not the id of an image"));
        use std::os::unix::fs::PermissionsExt;
        let storage = Storage::new(&[manifest]);
        let file = storage.0.path().join("vfs-images/f00/manifest");
        fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(
            storage
                .unknown()
                .contains("users other than root can write")
        );
    }

    #[test]
    fn newer_podman_keeps_images_apart() {
        let is_apart = |said: &str| podman_version(said).is_some_and(|version| version >= APART);
        for newer in [
            "4.5.1",
            "4.9.4-rhel",
            "5.4.2\n",
            "5.8.3-dev",
            "6.0.0-rc1",
            "10.1.0",
        ] {
            assert!(is_apart(&format!("podman version {newer}")), "{newer}");
        }
        for older in [
            "podman version 4.3.1",
            "podman version 4.5.0",
            "podman version unknown (engine 5.1.0)",
            "podman version 3.4.4+ds1",
        ] {
            assert!(!is_apart(older), "{older}");
        }
        for unknown in [
            "podman version 5",
            "podman version ",
            "conmon version 5.1.1",
            "5.1.1",
        ] {
            assert!(!is_apart(unknown), "{unknown}");
        }
        let conmon = "conmon\0-c\0id\0--exit-command\0/usr/bin/podman\0--exit-command-arg\0rm\0";
        assert_eq!(podman_of(conmon), Some("/usr/bin/podman"));
        for other in ["", "conmon\0-c\0id\0", "sh\0-c\0runmig create\0"] {
            assert_eq!(podman_of(other), None);
        }
    }

    #[test]
    fn others_are_not_podman() {
        let storage = Storage::new(&[]);
        let is_other = |bundle: &Path| matches!(look(bundle).0, Engine::Other);
        let root = fs::canonicalize(storage.0.path()).unwrap();
        assert!(is_other(&root));
        assert!(is_other(Path::new("/")));
        let bundle = root
            .join("run/overlay-containers")
            .join(ID)
            .join("userdata");
        fs::create_dir_all(&bundle).unwrap();
        assert!(is_other(&bundle));
        let crio = r#"{\"pod-name\":\"p\",\"pod-id\":\"p1\"}"#;
        let records = format!(r#"[{{"id":"{ID}","image":"f00","metadata":"{crio}"}}]"#);
        storage.write("vfs-containers/containers.json", &records);
        assert!(is_other(&storage.bundle()));
    }
}
