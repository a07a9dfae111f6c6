//! Programs and bundles for the measurement.

use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
}

/// A static program from a line of C.
pub fn compile(to: &Path, source: &str) {
    let mut cc = Command::new("cc")
        .args(["-static", "-O2", "-x", "c", "-", "-o"])
        .arg(to)
        .stdin(Stdio::piped())
        .spawn()
        .expect("cc is not there: run scripts/setup bench");
    let mut input = cc.stdin.take().expect("a pipe");
    input.write_all(source.as_bytes()).expect("cc reads");
    drop(input);
    assert!(cc.wait().expect("cc").success(), "cc failed");
}

pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|program| program.exists())
}

pub fn on_path(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("{name} is not there: run scripts/setup bench"))
}

/// busybox, and config.json as `runc spec` writes it, with an annotation.
pub fn make(bundle: &Path, asks: Option<(&str, &str)>) -> PathBuf {
    let rootfs = bundle.join("rootfs");
    for dir in ["bin", "dev", "proc", "sys"] {
        fs::create_dir_all(rootfs.join(dir)).expect("a folder");
    }
    fs::copy(on_path("busybox"), rootfs.join("bin/true")).expect("copy busybox");
    let mut spec = Command::new(on_path("runc"));
    spec.args(["spec", "--bundle"]).arg(bundle);
    assert!(spec.status().expect("runc").success());
    let file = bundle.join("config.json");
    let text = fs::read(&file).expect("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["/bin/true"]);
    if let Some((key, value)) = asks {
        config["annotations"] = json!({key: value});
    }
    write(&file, &config.to_string());
    bundle.to_owned()
}

/// The request for a slice.
pub const SLICE: Option<(&str, &str)> = Some(("runmig.dev/slice", "1g.10gb"));

/// A bundle like another, with the same root file system.
pub fn copy(bundle: &Path, to: &Path) -> PathBuf {
    let text = fs::read(bundle.join("config.json")).expect("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    config["root"]["path"] = json!(bundle.join("rootfs"));
    fs::create_dir(to).expect("a folder");
    write(&to.join("config.json"), &config.to_string());
    to.to_owned()
}

/// Writes the configuration of runmig on a simulated machine.
pub fn configure(file: &Path, machine: &Path, state: &Path) {
    let text = format!(
        "runtime = \"{}\"\nstate_dir = \"{}\"\ndriver_files = \"none\"\nsharing.enforcement = [\"none\"]\n[driver]\nlibrary = \"{}\"\nroot = \"{}\"\n",
        on_path("runc").display(),
        state.display(),
        machine.join("lib/libnvidia-ml.so.1").display(),
        machine.display()
    );
    write(file, &text);
}
