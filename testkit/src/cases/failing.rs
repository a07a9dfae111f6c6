//! When a create fails, nothing has happened.

use crate::runtimes::script;
use crate::{Bundle, Setup, unique};

#[track_caller]
fn fails(setup: &Setup, bundle: &Bundle) -> String {
    let before = bundle.bytes();
    let said = setup.try_create(bundle, &unique());
    assert!(!said.status.success(), "{said:?}");
    assert_eq!(bundle.bytes(), before);
    assert_eq!(bundle.names(), ["config.json", "rootfs"]);
    setup.nothing_is_left();
    said.stderr
}

/// After the slice was made: it is back before anybody hears of it.
pub fn releases_when_runtime_fails(setup: &Setup) {
    let front = setup.path("failing").join(setup.low.name());
    std::fs::create_dir(front.parent().unwrap()).unwrap();
    let seen = setup.path("seen");
    let sim = setup.machine.sim_command("show");
    let (program, dir) = (sim.get_program().display(), setup.machine.dir());
    let show = format!("{program} show {} >{}", dir.display(), seen.display());
    script(&front, &format!("{show}; echo 'it is broken' >&2; exit 3"));
    setup.put_before(&front);

    let bundle = setup.asking("1g.10gb", "true");
    let before = bundle.bytes();
    let said = setup.try_create(&bundle, &unique());
    assert_eq!(said.exits(3).stderr, "it is broken\n");
    let seen = std::fs::read_to_string(&seen).unwrap();
    assert!(seen.contains("MIG-"), "it was made by then:\n{seen}");
    assert_eq!(bundle.bytes(), before);
    setup.nothing_is_left();
}

/// A failed create, then the same bundle put right: as if the first had never been.
pub fn creates_again_after_failure(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "true");
    bundle.edit(|config| config["root"]["path"] = serde_json::json!("nowhere"));
    fails(setup, &bundle);
    bundle.edit(|config| config["root"]["path"] = serde_json::json!("rootfs"));
    let before = bundle.bytes();
    let id = setup.create_new(&bundle);
    setup.machine.the_instance();
    setup.ends(&[&id]);
    assert_eq!(bundle.bytes(), before);
}

pub fn refuses_restore_with_slice(setup: &Setup) {
    let bundle = setup.asking("1g.10gb", "true");
    let before = bundle.bytes();
    let line = setup.runmig(&["restore", "-b", bundle.as_str(), "c"]);
    assert_eq!(
        line.refused(),
        "runmig: container c asks for a GPU and cannot be restored: CUDA keeps state on the \
         GPU it was saved on; hint: create it anew"
    );
    assert_eq!(bundle.bytes(), before);
    setup.nothing_is_left();
}
