//! The files in `kubernetes/dra` that follow from others.

use crate::support::programs;
use testkit::prelude::*;

fn shipped(file: &str) -> PathBuf {
    repository().join("kubernetes").join(file)
}

/// `UPDATE=1` writes the file.
#[test]
fn one_file_has_all_objects() {
    let Some(bin) = programs() else {
        return;
    };
    let mut command = Command::new(bin.join("kubectl"));
    let output = command.arg("kustomize").arg(shipped("dra")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let head = "# All objects of runmig-dra, made by: UPDATE=1 cargo test -p runmig-dra --test rights one_file\n";
    let made = head.to_owned() + &String::from_utf8(output.stdout).unwrap();
    let file = shipped("dra/install.yaml");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &made).unwrap();
    }
    let shipped = fs::read_to_string(&file).unwrap_or_default();
    assert!(made == shipped, "{} is old; {head}", file.display());
}

#[test]
fn copies_are_the_same() {
    let read = |file: &str| fs::read_to_string(shipped(file)).unwrap();
    assert_eq!(read("dra/runtimeclass.yaml"), read("runtimeclass.yaml"));
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("image: localhost/runmig-dra:{version}\n");
    assert_eq!(read("dra/daemonset.yaml").matches(&image).count(), 2);
}
