//! The dependencies of the programs: a node without Kubernetes gets no part of its client.

use std::process::Command;

/// Crates that only the Kubernetes driver has.
const KUBERNETES: &[&str] = &["hyper", "k8s-openapi", "kube", "prost", "tokio", "tonic"];
const DRIVER: &str = "runmig-dra";

/// Returns the names in a dependency tree, without what tests alone need.
fn tree(packages: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges=normal,build", "--prefix=none"])
        .args(packages)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let names = lines.lines().filter_map(|line| line.split(' ').next());
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

#[test]
fn other_programs_know_no_kubernetes() {
    let others = tree(&["--workspace", "--exclude", DRIVER]);
    assert!(others.iter().any(|name| name == "runmig-lease"));
    let found: Vec<_> = { KUBERNETES.iter() }
        .filter(|name| others.iter().any(|other| other == *name))
        .collect();
    assert!(
        found.is_empty(),
        "dependencies of other programs: {found:?}"
    );
}

#[test]
fn driver_depends_on_lease_alone() {
    let its = tree(&["--package", DRIVER]);
    for name in KUBERNETES {
        assert!(its.iter().any(|dependency| dependency == name), "{name}");
    }
    let mut ours: Vec<_> = { its.iter() }
        .filter(|name| name.starts_with("runmig"))
        .collect();
    ours.sort();
    ours.dedup();
    assert_eq!(ours, [DRIVER, "runmig-lease"]);
}
