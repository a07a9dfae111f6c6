//! A claim's container on the real runc, by runmig.

use runmig_lease::Patience;
use testkit::claims::{claim, place, prepare, with};
use testkit::prelude::*;

/// The bundle has what a CDI file of the claim brings, and devices that the container shall not have.
#[test]
fn seals_container_on_runc() {
    let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", 2));
    let at = place(&setup.machine.gpu_uuid(0), "2g.20gb", 2, 2);
    prepare(&setup.config(), claim("a"), &at);
    let instance = setup.machine.the_instance();
    let its = setup.machine.nodes_of(&instance);

    let bundle = setup.bundle(&format!("{SHOW}; echo SLICE=$RUNMIG_SLICE_SLICE"));
    bundle.annotate("io.kubernetes.cri.sandbox-namespace", "team-a");
    bundle.annotate("io.kubernetes.cri.sandbox-name", "train");
    bundle.annotate("io.kubernetes.cri.sandbox-uid", "pod-uid");
    bundle.edit(|config| {
        let (_, (major, minor)) = its.iter().find(|(path, _)| *path == "nvidia0").unwrap();
        let foreign = ("nvidia1".to_owned(), (*major, minor + 1));
        let all = its.iter().map(|(path, number)| (path.clone(), *number));
        let all: Vec<_> = all.chain([foreign]).collect();
        let node = |(path, (major, minor)): &(String, (u32, u32))| {
            json!({"path": format!("/dev/{path}"), "type": "c", "major": major, "minor": minor})
        };
        let rule = |(_, (major, minor)): &(String, (u32, u32))| {
            json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rw"})
        };
        config["linux"]["devices"] = all.iter().map(node).collect();
        let rules = config["linux"]["resources"]["devices"].as_array_mut().unwrap();
        rules.extend(all.iter().map(rule));
        let slice = format!("RUNMIG_SLICE_SLICE={}", instance.uuid);
        set_env(config, &["NVIDIA_VISIBLE_DEVICES=void", &slice]);
        let path = setup.program("runmig-claim");
        let hook = |verb: &str| json!({
            "path": path,
            "args": ["runmig-claim", verb, "--claim", "a", "--device", "device"],
        });
        config["hooks"]["createRuntime"] = json!([hook("attach")]);
        config["hooks"]["poststop"] = json!([hook("detach")]);
    });
    let before = bundle.bytes();
    let said = setup.run(&bundle).stdout;
    assert_eq!(nodes(&said), its, "{said}");
    assert_eq!(visible(&said), Some(instance.uuid.as_str()), "{said}");
    has(&said, &format!("SLICE={}\n", instance.uuid));
    assert_eq!(bundle.bytes(), before);
    assert_eq!(setup.the_lease()["claim"]["uid"], "a");
    let unprepared = with(&setup.config(), |l| l.unprepare("a", Patience::NONE));
    unprepared.unwrap();
    setup.nothing_is_left();
}
