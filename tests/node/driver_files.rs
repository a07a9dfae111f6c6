//! The node's CDI specification is removed, old, or of another kind.

use super::install::{CDI, LIBCUDA};
use super::machine::{IMAGE, Node};
use super::slices::ASK;

/// Puts the specification and its library back.
struct Kept<'a>(&'a Node);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0
            .run(&format!("mv /root/kept.json {CDI}; echo driver >{LIBCUDA}"));
    }
}

pub fn needs_the_files_of_the_driver(node: &Node) {
    let run = || {
        node.run(&format!(
            "podman --runtime runmig run --rm --network=none {ASK} {IMAGE} cat /usr/lib/libcuda.so.1"
        ))
    };
    assert_eq!(run().ok().stdout, "driver\n");
    node.ok(&format!("cp {CDI} /root/kept.json"));
    let kept = Kept(node);
    let refused = |words: &str| {
        let said = run();
        assert!(!said.status.success(), "{said:?}");
        assert!(said.stderr.contains(words), "{said:?}");
        let doctor = node.run("migctl doctor --only=engines.files");
        assert!(doctor.stdout.contains(words), "{doctor:?}");
        node.nothing_is_left();
    };
    node.ok(&format!("rm {CDI}"));
    refused("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml");
    node.ok(&format!("cp /root/kept.json {CDI}; rm {LIBCUDA}"));
    refused(&format!("{LIBCUDA} is missing"));
    node.ok(&format!(
        "echo driver >{LIBCUDA}; sed -i 's,nvidia.com/gpu,management.&,' {CDI}"
    ));
    assert_eq!(run().ok().stdout, "driver\n");
    drop(kept);
    assert_eq!(run().ok().stdout, "driver\n");
    node.nothing_is_left();
}
