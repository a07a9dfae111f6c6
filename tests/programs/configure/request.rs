//! A runtime with a request: its file, its link and its registration come and go together.

use crate::configure::place::{Place, RUNMIG, engines};
use testkit::prelude::*;

const FILE: &str = "/etc/runmig/1g.toml";
const LINK: &str = "/usr/local/bin/runmig-1g";
const ONE: [&str; 4] = ["--name", "1g", "--request", "slice=1g.10gb"];
const REMOVE: [&str; 3] = ["--name", "1g", "--remove"];

fn podman() -> Place {
    Place::stub("podman", "podman version 5.8.3")
}

// docs/named-runtimes.md: migctl configure docker --name 1g --request slice=1g.10gb
// docs/named-runtimes.md: migctl configure docker --name 1g --remove
#[test]
fn comes_and_goes_in_one_step() {
    for (engine, program, names) in engines("runmig-1g") {
        let place = Place::new().of(engine, &program);
        let says = |arguments: &[&str]| place.configure(arguments).ok().stdout;
        let before = place.files();
        let said = says(&[&ONE[..], &["--dry-run"]].concat());
        has(&said, "+++ b/etc/runmig/1g.toml");
        has(&said, "+slice = \"1g.10gb\"");
        assert_eq!(place.files(), before);

        let said = says(&ONE);
        has(&said, &format!("created {FILE}"));
        has(&said, &format!("linked {LINK} to runmig"));
        ends_with(&place.read(FILE), "\n[request]\nslice = \"1g.10gb\"\n");
        has(&place.read(&names), LINK);
        assert!(place.is_linked(LINK));
        let after = place.files();
        has(&says(&ONE), "runmig-1g is registered, nothing to change");
        // It keeps its request.
        says(&ONE[..2]);
        assert_eq!(place.files(), after);

        // The engine need not start anew for another request.
        let said = says(&[&ONE[..2], &["--request", "share=8Gi"]].concat());
        has(&said, &format!("changed {FILE}"));
        lacks(&said, "systemctl");

        has(&says(&REMOVE), &format!("removed {FILE}"));
        assert_eq!(place.files(), before, "{engine}");
        assert!(!place.is_linked(LINK) && !place.path("/etc/runmig").exists());
        has(&says(&REMOVE), "nothing to change");
    }
}

/// Failure: the request of a runtime goes with the first of two engines that call it
#[test]
fn link_and_file_stay_for_another_engine() {
    let engines = engines("runmig-1g");
    for (n, (first, first_program, _)) in engines.iter().enumerate() {
        let (second, second_program, file) = &engines[(n + 1) % engines.len()];
        if first == second {
            continue;
        }
        let place = Place::new().of(second, second_program);
        place.configure(&ONE).ok();
        let place = place.of(first, first_program);
        place.configure(&ONE).ok();
        let dry = [&REMOVE[..], &["--dry-run"]].concat();
        let said = place.configure(&dry).ok();
        said.says(&format!("would keep the link {LINK}: {file} names it"));
        let said = place.configure(&REMOVE).ok();
        said.says(&format!("kept the link {LINK}: {file} names it"));
        lacks(&said.stdout, &format!("kept {FILE}"));
        assert!(place.is_linked(LINK) && place.path(FILE).exists());
        let place = place.of(second, second_program);
        let said = place.configure(&REMOVE).ok();
        said.says(&format!("removed the link {LINK}"));
        said.says(&format!("removed {FILE}"));
        assert!(!place.is_linked(LINK) && !place.path(FILE).exists());
    }
}

/// Before version 5 each drop-in has the whole list of runtimes, which would keep the link of another.
#[test]
fn second_name_of_podman_4_leaves_nothing() {
    let place = Place::stub("podman", "podman version 4.3.1");
    let before = place.files();
    let (plain, mut after) = (&[][..], Vec::new());
    for arguments in [plain, &ONE, plain, &ONE] {
        place.configure(arguments).ok();
        after.push(place.files());
    }
    assert_eq!(after[1], after[3]);
    place.configure(&["--remove"]).ok();
    place.configure(&REMOVE).ok();
    assert_eq!(place.files(), before);
    assert!(!place.is_linked(LINK));
}

#[test]
fn keeps_what_others_wrote() {
    let place = podman();
    // By hand, with the same request, and with another.
    place.write(FILE, "[request]\nslice = \"1g.10gb\" # small\n");
    // The name alone finds it too: plain runmig would give such a container no slice.
    place.configure(&ONE[..2]).ok();
    assert!(place.is_linked(LINK));
    place.configure(&REMOVE).ok();
    place.configure(&ONE).ok();
    assert!(place.read(FILE).ends_with("# small\n"));
    place.write(FILE, "wait = \"5s\"\n[request]\nslice = \"2g.20gb\"\n");
    let why = format!("cannot write {FILE}: it has other content than migctl configure gives it");
    let hint = "hint: write [request] into it by hand, or remove it";
    place.refused(&ONE, &format!("{why}; {hint}"));
    let said = place.configure(&REMOVE).ok();
    said.says(&format!("kept {FILE}: somebody wrote or changed it"));
    assert!(!place.is_linked(LINK) && place.path(FILE).exists());
    fs::remove_file(place.path(FILE)).unwrap();
    // The link alone tells the name where somebody has removed the file.
    place.configure(&ONE).ok();
    fs::remove_file(place.path(FILE)).unwrap();
    place.configure(&REMOVE).ok();
    assert!(!place.is_linked(LINK));

    // One that somebody changed since, by a value or by a comment.
    for (from, to) in [("1g.10gb", "2g.20gb"), ("[request]", "# mine\n[request]")] {
        place.configure(&ONE).ok();
        let changed = place.read(FILE).replace(from, to);
        place.write(FILE, &changed);
        // The same values may stay.
        if from.starts_with('[') {
            place.configure(&ONE).ok();
        } else {
            place.refused(&ONE, &why);
        }
        let said = place.configure(&REMOVE).ok().stdout;
        has(&said, &format!("kept {FILE}: "));
        assert_eq!(place.read(FILE), changed);
        assert!(!place.is_linked(LINK));
        fs::remove_file(place.path(FILE)).unwrap();
    }
}

#[test]
fn writes_every_key() {
    let place = podman();
    for (words, lines) in testkit::rows! {
        "wait=30s slice=10Gi|2g.20gb*2 fixed=true compute=2" =>
            "wait = \"30s\"\nslice = \"10Gi|2g.20gb*2\"\nfixed = true\ncompute = \"2\"\n";
        "gpu=2 fixed=false" => "gpu = \"2\"\nfixed = false\n";
        "share=1/4 slice=3g.40gb" => "share = \"1/4\"\nslice = \"3g.40gb\"\n";
    } {
        let words = words.split(' ').flat_map(|word| ["--request", word]);
        let arguments: Vec<&str> = ["--name", "runmig-q"].into_iter().chain(words).collect();
        place.configure(&arguments).ok();
        let text = place.read("/etc/runmig/q.toml");
        ends_with(&text, &format!("\n[request]\n{lines}"));
    }
    place.configure(&["--name", "runmig-q", "--remove"]).ok();
    assert!(place.files().is_empty());
}

#[test]
fn refuses_wrong_requests() {
    let place = podman();
    for (more, words) in testkit::rows! {
        "--request slice=1g.10gb" =>
            "cannot give runmig a request: no link runmig-NAME of that name is its runtime; hint: name one with --name";
        "--name config --request slice=1g.10gb" =>
            "cannot register --name runmig-config: runmig-config would read /etc/runmig/config.toml, as runmig itself does; hint: choose another name";
        "--name config" => "cannot register --name config: ";
        "--name 1g --request slise=1g.10gb" => "cannot use --request: line 2: unknown key slise; hint: write slice";
        "--name 1g --request slice" => "cannot use --request: \"slice\" has no value; hint: write KEY=VALUE";
        "--name 1g --request slice=1g.10gb --request slice=2g.20gb" => "cannot use --request: line 3: duplicate key";
        "--name 1g --request share=8Gi --request compute=2" =>
            "request.compute counts compute slices, and request.share asks for a share";
        "--name 1g --request fixed=true" => "cannot use --request: [request] asks for nothing";
        "--name 1g --request gpu=1 --set-as-default" =>
            "cannot make runmig-1g the default: /etc/runmig/1g.toml gives each of its containers a request; hint: omit --set-as-default";
        &format!("--name 1g --request gpu=1 --runtime-path {RUNMIG}") => "cannot give runmig-1g a request";
    } {
        place.refused(&more.split(' ').collect::<Vec<_>>(), words);
    }
    place.write(FILE, "[request]\nslice = \"1g.10gb\"\n");
    let default = ["--name", "runmig-1g", "--set-as-default"];
    place.refused(&default, "cannot make runmig-1g the default");
    // Also by another name.
    symlink("runmig", place.path(LINK)).unwrap();
    let other = ["--name", "small", "--runtime-path", LINK];
    let default = [&other[..], &["--set-as-default"]].concat();
    place.refused(&default, "cannot make small the default");
    fs::remove_file(place.path(LINK)).unwrap();
    place.write(FILE, "[request]\nslice = \"huge\"\n");
    let words = format!("cannot read configuration {FILE}: request.slice: \"huge\"");
    place.refused(&["--name", "runmig-1g"], &words);
}
