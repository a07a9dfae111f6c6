//! The image that the tests run, made here and pulled from nowhere: busybox, in an OCI archive.

use super::bundle::rootfs;
use crate::prelude::*;
pub use runmig_lease::framed::sha256 as hash;
use serde_json::Map;

/// With nothing said to it, it waits, as a pod's sandbox does.
pub const IMAGE: &str = "localhost/runmig-test:1";

/// Ends when it is told to: as a first process it would not by itself.
pub const STAYS: &str = "trap 'exit 0' TERM INT; while :; do sleep 1000 & wait; done";

/// What an image says beside its programs.
#[derive(Default)]
pub struct Says<'a> {
    pub environment: &'a [&'a str],
    /// Labels, and annotations of its manifest and of the index.
    pub notes: &'a [(&'a str, &'a str)],
    /// Files by their paths without the first slash.
    pub files: &'a [(&'a str, String)],
}

/// Writes the archive into a folder that is not there yet; its path.
pub fn archive(dir: &Path) -> PathBuf {
    archive_of(dir, IMAGE, &Says::default())
}

/// The same for an image with a name and with more in it.
pub fn archive_of(dir: &Path, name: &str, says: &Says<'_>) -> PathBuf {
    let (layout, layer) = (dir.join("layout"), dir.join("layer.tar"));
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    rootfs(&dir.join("rootfs"));
    for (file, text) in says.files {
        let file = dir.join("rootfs").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    tar(&dir.join("rootfs"), &layer);

    let blob = |bytes: &[u8], media: &str| {
        let hash = hash(bytes);
        fs::write(blobs.join(&hash), bytes).unwrap();
        let media = format!("application/vnd.oci.image.{media}");
        json!({"mediaType": media, "digest": format!("sha256:{hash}"), "size": bytes.len()})
    };
    let layer = blob(&fs::read(layer).unwrap(), "layer.v1.tar");
    let notes: Map<String, Value> = { says.notes.iter() }
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    let environment = [&["PATH=/bin"], says.environment].concat();
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sh", "-c", STAYS], "Env": environment, "Labels": notes},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = blob(config.to_string().as_bytes(), "config.v1+json");
    let media = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2, "mediaType": media, "config": config, "layers": [layer],
        "annotations": notes,
    });
    let mut manifest = blob(manifest.to_string().as_bytes(), "manifest.v1+json");
    // podman reads the one, containerd the other.
    let mut annotations = notes;
    annotations.insert("org.opencontainers.image.ref.name".into(), json!(name));
    annotations.insert("io.containerd.image.name".into(), json!(name));
    manifest["annotations"] = Value::Object(annotations);
    let write = |name: &str, value: Value| fs::write(layout.join(name), value.to_string()).unwrap();
    write("oci-layout", json!({"imageLayoutVersion": "1.0.0"}));
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    write("index.json", index);
    let archive = dir.join("image.tar");
    tar(&layout, &archive);
    archive
}

/// Packs what is in a folder.
pub fn tar(dir: &Path, to: &Path) {
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--numeric-owner"]);
    said(tar.arg("-C").arg(dir).arg("-cf").arg(to).arg(".")).ok();
}

/// In the words of Go, as images have it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
