//! The CDI files by whose devices containers ask.

use crate::configure::place::Place;
use testkit::{REQUEST_HOOK, has};

const FILES: [&str; 4] = ["slice", "share", "gpu", "wait"];

fn file(kind: &str) -> String {
    format!("etc/cdi/runmig-{kind}.yaml")
}

#[test]
fn writes_devices_and_takes_them_away() {
    let place = Place::new().calls(&["cdi"]);
    place.write("/etc/hostname", "node");
    let before = place.files();
    place.configure(&["--dry-run"]).ok().says("+++");
    assert_eq!(place.files(), before);
    let said = place.configure(&[]).ok().stdout;
    for kind in FILES {
        has(&said, &format!("created /{}", file(kind)));
        let (_, mode, text) = &place.files()[&file(kind)];
        assert_eq!(mode & 0o777, 0o644, "users' engines read it too");
        has(text, &format!("kind: runmig.dev/{kind}\n"));
        has(text, "cdiVersion: \"0.5.0\"");
        has(text, &format!("\"path\":\"/usr/local/bin/{REQUEST_HOOK}\""));
    }
    for (kind, name, asked) in [
        ("slice", "1g.10gb", "slice=1g.10gb"),
        ("slice", "1g.10gb.me", "slice=1g.10gb+me"),
        ("slice", "2x1g.10gb", "slice=1g.10gb*2"),
        ("slice", "20Gi", "slice=20Gi"),
        ("share", "1:4", "share=1/4"),
        ("share", "1of4", "share=1/4"),
    ] {
        let devices = place.read(&file(kind));
        let named = format!("\"name\":\"{name}\"");
        let line = devices.lines().find(|line| line.contains(&named));
        let words = format!("[\"runmig-request\",\"{asked}\"]");
        has(line.expect(name), &words);
    }
    has(&place.configure(&[]).ok().stdout, "nothing to change");
    place.configure(&["--remove"]).ok();
    assert_eq!(place.files(), before);
}

#[test]
fn refuses_what_is_not_its_own() {
    let place = Place::new().calls(&["cdi"]);
    for option in ["--set-as-default", "--name=other", "--drop-in=/x"] {
        place.refused(&[option], "belong to no engine");
    }
    place.write(&file("gpu"), "kind: example.com/gpu\n");
    place.refused(&[], "it has other content than migctl configure gives it");
    std::fs::remove_file(place.path(&file("gpu"))).unwrap();
    std::fs::remove_file(place.path("/usr/local/bin").join(REQUEST_HOOK)).unwrap();
    place.refused(&[], REQUEST_HOOK);
}
