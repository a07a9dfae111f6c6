//! A runtime with a request: its file, its link and its registration come and go together.

use crate::configure::place::{Place, RUNMIG};
use testkit::prelude::*;

const FILE: &str = "/etc/runmig/1g.toml";
const LINK: &str = "/usr/local/bin/runmig-1g";
const ONE: [&str; 4] = ["--name", "1g", "--request", "slice=1g.10gb"];
const REMOVE: [&str; 3] = ["--name", "1g", "--remove"];

/// Each engine that is here, with its program and the file that names the runtime.
fn engines() -> Vec<(&'static str, String, &'static str)> {
    let engines = testkit::rows! {
        "podman", on_path("podman") => "/etc/containers/containers.conf.d/50-runmig-1g.conf";
        "docker", built("docker", "dockerd").or_else(|| on_path("dockerd")) => "/etc/docker/daemon.json";
        "containerd", built("containerd", "containerd") => "/etc/containerd/conf.d/runmig-1g.toml";
        "crio", built("cri-o", "crio") => "/etc/crio/crio.conf.d/20-runmig-1g.conf";
    };
    let there = engines.into_iter().filter_map(|(engine, program, file)| {
        if program.is_none() {
            skip_until_full(&format!("no {engine}; run scripts/setup full"));
        }
        Some((engine, program?.display().to_string(), file))
    });
    there.collect()
}

/// podman without a podman: it answers with its version alone.
fn podman(place: &Place) -> String {
    let program = place.path("/opt/podman");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    script(&program, "echo podman version 5.8.3");
    program.display().to_string()
}

fn is_linked(place: &Place) -> bool {
    fs::read_link(place.path(LINK)).is_ok_and(|to| to == Path::new("runmig"))
}

// docs/named-runtimes.md: migctl configure docker --name 1g --request slice=1g.10gb
// docs/named-runtimes.md: migctl configure docker --name 1g --remove
#[test]
fn comes_and_goes_in_one_step() {
    for (engine, program, names) in engines() {
        let place = Place::new();
        let arguments = [&[engine, "--executable", &program], &ONE[..]].concat();
        let remove = [&[engine, "--executable", &program], &REMOVE[..]].concat();
        let before = place.files();
        let dry = [&arguments[..], &["--dry-run"]].concat();
        let said = place.configure(&dry).ok().stdout;
        has(&said, "+++ b/etc/runmig/1g.toml");
        has(&said, "+slice = \"1g.10gb\"");
        assert_eq!(place.files(), before);

        let said = place.configure(&arguments).ok().stdout;
        has(&said, &format!("created {FILE}"));
        has(&said, &format!("linked {LINK} to runmig"));
        assert!(
            place
                .read(FILE)
                .ends_with("\n[request]\nslice = \"1g.10gb\"\n")
        );
        assert!(place.read(names).contains(LINK), "{}", place.read(names));
        assert!(is_linked(&place));
        let after = place.files();
        let said = place.configure(&arguments).ok().stdout;
        has(&said, "runmig-1g is registered, nothing to change");
        // It keeps its request.
        place.configure(&arguments[..5]).ok();
        assert_eq!(place.files(), after);

        // The engine need not start anew for another request.
        let other = [&arguments[..5], &["--request", "share=8Gi"]].concat();
        let said = place.configure(&other).ok().stdout;
        has(&said, &format!("changed {FILE}"));
        assert!(!said.contains("systemctl"), "{said}");

        let said = place.configure(&remove).ok().stdout;
        has(&said, &format!("removed {FILE}"));
        assert_eq!(place.files(), before, "{engine}");
        assert!(!is_linked(&place) && !place.path("/etc/runmig").exists());
        place.configure(&remove).ok().says("nothing to change");
    }
}

/// Failure: the request of a runtime goes with the first of two engines that call it
#[test]
fn file_stays_for_another_engine() {
    let engines = engines();
    for (n, (first, first_program, _)) in engines.iter().enumerate() {
        let (second, second_program, _) = &engines[(n + 1) % engines.len()];
        if first == second {
            continue;
        }
        let place = Place::new();
        for (engine, program) in [(first, first_program), (second, second_program)] {
            let arguments = [&[engine, "--executable", program], &ONE[..]].concat();
            place.configure(&arguments).ok();
        }
        let remove = |engine, program| {
            let arguments = [&[engine, "--executable", program], &REMOVE[..]].concat();
            place.configure(&arguments).ok().stdout
        };
        let said = remove(*first, &**first_program);
        has(&said, &format!("kept the link {LINK}: "));
        assert!(!said.contains(&format!("kept {FILE}")), "{said}");
        assert!(place.path(FILE).exists());
        let said = remove(*second, &**second_program);
        has(&said, &format!("removed {FILE}"));
        assert!(!is_linked(&place) && !place.path(FILE).exists());
    }
}

#[test]
fn keeps_what_others_wrote() {
    let place = Place::new();
    let program = podman(&place);
    let arguments = [&["podman", "--executable", &program], &ONE[..]].concat();
    let remove = [&["podman", "--executable", &program], &REMOVE[..]].concat();
    // By hand, with the same request, and with another.
    place.write(FILE, "[request]\nslice = \"1g.10gb\" # small\n");
    place.configure(&arguments).ok();
    assert!(place.read(FILE).ends_with("# small\n"));
    place.write(FILE, "wait = \"5s\"\n[request]\nslice = \"2g.20gb\"\n");
    place.refused(
        &arguments,
        &format!(
            "cannot write {FILE}: it has other content than migctl configure gives it; hint: write [request] into it by hand, or remove it"
        ),
    );
    let said = place.configure(&remove).ok().stdout;
    has(&said, &format!("kept {FILE}: somebody wrote or changed it"));
    assert!(!is_linked(&place) && place.path(FILE).exists());
    fs::remove_file(place.path(FILE)).unwrap();
    // The link alone tells the name where somebody has removed the file.
    place.configure(&arguments).ok();
    fs::remove_file(place.path(FILE)).unwrap();
    place.configure(&remove).ok();
    assert!(!is_linked(&place));

    // One that somebody changed since, by a value or by a comment.
    for (from, to) in [("1g.10gb", "2g.20gb"), ("[request]", "# mine\n[request]")] {
        place.configure(&arguments).ok();
        let changed = place.read(FILE).replace(from, to);
        place.write(FILE, &changed);
        // The same values may stay.
        if from.starts_with('[') {
            place.configure(&arguments).ok();
        } else {
            let why = "it has other content than migctl configure gives it";
            place.refused(&arguments, &format!("cannot write {FILE}: {why}"));
        }
        let said = place.configure(&remove).ok().stdout;
        has(&said, &format!("kept {FILE}: "));
        assert_eq!(place.read(FILE), changed);
        assert!(!is_linked(&place));
        fs::remove_file(place.path(FILE)).unwrap();
    }
}

#[test]
fn writes_every_key() {
    let place = Place::new();
    let program = podman(&place);
    let base = ["podman", "--executable", &program, "--name", "runmig-q"];
    for (words, lines) in [
        (
            &[
                "wait=30s",
                "slice=10Gi|2g.20gb*2",
                "fixed=true",
                "compute=2",
            ][..],
            "wait = \"30s\"\nslice = \"10Gi|2g.20gb*2\"\nfixed = true\ncompute = \"2\"\n",
        ),
        (&["gpu=2", "fixed=false"], "gpu = \"2\"\nfixed = false\n"),
        (
            &["share=1/4", "slice=3g.40gb"],
            "share = \"1/4\"\nslice = \"3g.40gb\"\n",
        ),
    ] {
        let words = words.iter().flat_map(|word| ["--request", word]);
        let arguments: Vec<&str> = base.into_iter().chain(words).collect();
        place.configure(&arguments).ok();
        let text = place.read("/etc/runmig/q.toml");
        assert!(text.ends_with(&format!("\n[request]\n{lines}")), "{text}");
    }
    place.also(&base, &["--remove"]).ok();
    assert!(place.files().is_empty());
}

#[test]
fn refuses_wrong_requests() {
    let place = Place::new();
    let program = podman(&place);
    let base = ["podman", "--executable", &program];
    for (more, words) in [
        (
            &["--request", "slice=1g.10gb"][..],
            "cannot give runmig a request: no link runmig-NAME of that name is its runtime; hint: name one with --name",
        ),
        (
            &["--name", "1g", "--request", "slise=1g.10gb"],
            "cannot use --request: line 2: unknown key slise; hint: write slice",
        ),
        (
            &["--name", "1g", "--request", "slice"],
            "cannot use --request: \"slice\" has no value; hint: write KEY=VALUE",
        ),
        (
            &[
                "--name",
                "1g",
                "--request",
                "slice=1g.10gb",
                "--request",
                "slice=2g.20gb",
            ],
            "cannot use --request: line 3: duplicate key",
        ),
        (
            &[
                "--name",
                "1g",
                "--request",
                "share=8Gi",
                "--request",
                "compute=2",
            ],
            "request.compute counts compute slices, and request.share asks for a share",
        ),
        (
            &["--name", "1g", "--request", "fixed=true"],
            "cannot use --request: [request] asks for nothing",
        ),
        (
            &["--name", "1g", "--request", "gpu=1", "--set-as-default"],
            "cannot make runmig-1g the default: /etc/runmig/1g.toml gives each of its containers a request; hint: omit --set-as-default",
        ),
        (
            &[
                "--name",
                "1g",
                "--request",
                "gpu=1",
                "--runtime-path",
                RUNMIG,
            ],
            "cannot give runmig-1g a request",
        ),
    ] {
        place.refused(&[&base[..], more].concat(), words);
    }
    place.write(FILE, "[request]\nslice = \"1g.10gb\"\n");
    let named = [&base[..], &["--name", "runmig-1g"]].concat();
    place.refused(
        &[&named[..], &["--set-as-default"]].concat(),
        "cannot make runmig-1g the default",
    );
    // Also by another name.
    symlink("runmig", place.path(LINK)).unwrap();
    let other = [
        "--name",
        "small",
        "--runtime-path",
        LINK,
        "--set-as-default",
    ];
    place.refused(
        &[&base[..], &other].concat(),
        "cannot make small the default",
    );
    fs::remove_file(place.path(LINK)).unwrap();
    place.write(FILE, "[request]\nslice = \"huge\"\n");
    place.refused(
        &named,
        &format!("cannot read configuration {FILE}: request.slice: \"huge\""),
    );
}
