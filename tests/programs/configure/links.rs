//! The link that a second handler is called by: it goes with the last engine that calls it.

use crate::configure::place::Place;
use testkit::prelude::*;

const NAME: [&str; 2] = ["--name", "runmig-a100"];
const LINK: &str = "/usr/local/bin/runmig-a100";
const DAEMON_JSON: &str = "/etc/docker/daemon.json";

/// Each with its program, and the file that then names the link.
fn engines() -> Vec<(&'static str, String, &'static str)> {
    let engines = testkit::rows! {
        "podman", on_path("podman") => "/etc/containers/containers.conf.d/50-runmig-a100.conf";
        "containerd", on_path("containerd") => "/etc/containerd/config.toml";
        "containerd", built("containerd", "containerd") => "/etc/containerd/conf.d/runmig-a100.toml";
        "crio", built("cri-o", "crio") => "/etc/crio/crio.conf.d/20-runmig-a100.conf";
        "docker", built("docker", "dockerd") => DAEMON_JSON;
    };
    let there = engines.into_iter().filter_map(|(engine, program, file)| {
        if program.is_none() {
            skip_until_full(&format!("no {engine}; run scripts/setup full"));
        }
        Some((engine, program?.display().to_string(), file))
    });
    there.collect()
}

fn configure(place: &Place, engine: &str, program: &str, more: &[&str]) -> String {
    let arguments = [&[engine, "--executable", program], &NAME[..], more].concat();
    place.configure(&arguments).ok().stdout
}

fn is_there(place: &Place) -> bool {
    fs::read_link(place.path(LINK)).is_ok_and(|to| to == Path::new("runmig"))
}

#[test]
fn link_stays_for_another_engine() {
    let engines = engines();
    for (n, (first, first_program, _)) in engines.iter().enumerate() {
        let (second, second_program, file) = &engines[(n + 1) % engines.len()];
        if first == second {
            continue;
        }
        let place = Place::new();
        configure(&place, first, first_program, &[]);
        configure(&place, second, second_program, &[]);
        let dry = configure(&place, first, first_program, &["--remove", "--dry-run"]);
        has(
            &dry,
            &format!("would keep the link {LINK}: {file} names it"),
        );
        let said = configure(&place, first, first_program, &["--remove"]);
        has(&said, &format!("kept the link {LINK}: {file} names it"));
        assert!(is_there(&place));
        let said = configure(&place, second, second_program, &["--remove"]);
        has(&said, &format!("removed the link {LINK}"));
        assert!(!is_there(&place));
    }
}

/// In a file that containerd imports.
#[test]
fn link_stays_for_imported_files() {
    let Some(program) = on_path("podman") else {
        return skip("podman is not there; run scripts/setup");
    };
    let program = program.display().to_string();
    let place = Place::new();
    let (first, second) = ("/etc/containerd/config.toml", "/srv/more/1.toml");
    let removes = || {
        configure(&place, "podman", &program, &[]);
        configure(&place, "podman", &program, &["--remove"])
    };
    place.write(first, "imports = [\"/srv/more/*.toml\"]\nversion = 2\n");
    place.write(second, &format!("x = \"{LINK}\"\n"));
    has(
        &removes(),
        "kept the link /usr/local/bin/runmig-a100: /srv/more/1.toml names it",
    );
    // A longer name is another's.
    place.write(
        second,
        &format!("x = \"{LINK}0\"\ny = \"my-runmig-a100\"\n"),
    );
    assert!(removes().contains("removed the link"));
    place.write(first, "imports = [\"/srv/*/?.toml\"]\n");
    let said = removes();
    let why = format!(
        "cannot follow the imports of {first}: migctl does not know the pattern /srv/*/?.toml"
    );
    has(
        &said,
        &format!("migctl cannot tell whether another engine calls it: {why}"),
    );
    assert!(is_there(&place));
}

#[test]
fn link_stays_when_unreadable() {
    let Some(program) = on_path("podman") else {
        return skip("podman is not there; run scripts/setup");
    };
    let program = program.display().to_string();
    let place = Place::new();
    place.write(DAEMON_JSON, "{}");
    let file = place.path(DAEMON_JSON);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    configure(&place, "podman", &program, &[]);
    let said = configure(&place, "podman", &program, &["--remove"]);
    let why =
        format!("migctl cannot tell whether another engine calls it: cannot read {DAEMON_JSON}: ");
    has(&said, &format!("kept the link {LINK}: {why}"));
    assert!(is_there(&place));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let said = configure(&place, "podman", &program, &["--remove"]);
    has(&said, "removed the link");
}
