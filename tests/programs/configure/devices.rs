//! The CDI files by whose devices containers ask.

use crate::configure::place::Place;
use testkit::{REQUEST_HOOK, has};

const FILES: [&str; 4] = ["slice", "share", "gpu", "wait"];

fn file(kind: &str) -> String {
    format!("etc/cdi/runmig-{kind}.yaml")
}

#[test]
fn writes_devices_and_takes_them_away() {
    let place = Place::new();
    place.write("/etc/hostname", "node");
    let before = place.files();
    place.configure(&["cdi", "--dry-run"]).ok().says("+++");
    assert_eq!(place.files(), before);
    let said = place.configure(&["cdi"]).ok().stdout;
    for kind in FILES {
        has(&said, &format!("created /{}", file(kind)));
        let (_, mode, text) = &place.files()[&file(kind)];
        assert_eq!(mode & 0o777, 0o644, "users' engines read it too");
        has(text, &format!("kind: runmig.dev/{kind}\n"));
        has(text, "cdiVersion: \"0.5.0\"");
        has(text, &format!("\"path\":\"/usr/local/bin/{REQUEST_HOOK}\""));
    }
    let slices = place.read(&file("slice"));
    for (name, asked) in [
        ("1g.10gb", "slice=1g.10gb"),
        ("1g.10gb.me", "slice=1g.10gb+me"),
        ("2x1g.10gb", "slice=1g.10gb*2"),
        ("20Gi", "slice=20Gi"),
    ] {
        let line = slices
            .lines()
            .find(|line| line.contains(&format!("\"name\":\"{name}\"")));
        has(
            line.expect(name),
            &format!("[\"runmig-request\",\"{asked}\"]"),
        );
    }
    let shares = place.read(&file("share"));
    for name in ["1:4", "1of4"] {
        let line = shares
            .lines()
            .find(|line| line.contains(&format!("\"name\":\"{name}\"")));
        has(line.expect(name), "share=1/4");
    }
    has(&place.configure(&["cdi"]).ok().stdout, "nothing to change");
    place.configure(&["cdi", "--remove"]).ok();
    assert_eq!(place.files(), before);
}

#[test]
fn refuses_what_is_not_its_own() {
    let place = Place::new();
    for option in [
        &["--set-as-default"][..],
        &["--name", "other"],
        &["--drop-in", "/x"],
    ] {
        let said = place.configure(&[&["cdi"], option].concat());
        has(&said.refused(), "belong to no engine");
    }
    place.write(&file("gpu"), "kind: example.com/gpu\n");
    let before = place.files();
    place
        .configure(&["cdi"])
        .refused_for("it has other content than migctl configure gives it");
    assert_eq!(place.files(), before);
    std::fs::remove_file(place.path(&file("gpu"))).unwrap();
    std::fs::remove_file(place.path("/usr/local/bin").join(REQUEST_HOOK)).unwrap();
    has(&place.configure(&["cdi"]).refused(), REQUEST_HOOK);
}
