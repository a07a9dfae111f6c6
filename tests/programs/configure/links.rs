//! The link that a second handler is called by: it stays where any engine may call it.

use crate::configure::place::Place;
use testkit::prelude::*;

const LINK: &str = "/usr/local/bin/runmig-a100";
const DAEMON_JSON: &str = "/etc/docker/daemon.json";

fn podman() -> Place {
    Place::stub("podman", "podman version 5.8.3")
}

/// Registers the handler and takes it back. Returns what is said then.
fn removes(place: &Place) -> String {
    place.configure(&["--name", "runmig-a100"]).ok();
    let remove = ["--name", "runmig-a100", "--remove"];
    place.configure(&remove).ok().stdout
}

/// In a file that containerd imports.
#[test]
fn link_stays_for_imported_files() {
    let place = podman();
    let (first, second) = ("/etc/containerd/config.toml", "/srv/more/1.toml");
    place.write(first, "imports = [\"/srv/more/*.toml\"]\nversion = 2\n");
    place.write(second, &format!("x = \"{LINK}\"\n"));
    has(
        &removes(&place),
        "kept the link /usr/local/bin/runmig-a100: /srv/more/1.toml names it",
    );
    // A longer name is another's.
    place.write(
        second,
        &format!("x = \"{LINK}0\"\ny = \"my-runmig-a100\"\n"),
    );
    has(&removes(&place), "removed the link");
    place.write(first, "imports = [\"/srv/*/?.toml\"]\n");
    let why = format!(
        "cannot follow the imports of {first}: migctl does not know the pattern /srv/*/?.toml"
    );
    has(
        &removes(&place),
        &format!("migctl cannot tell whether another engine calls it: {why}"),
    );
    assert!(place.is_linked(LINK));
}

#[test]
fn link_stays_when_unreadable() {
    let place = podman();
    place.write(DAEMON_JSON, "{}");
    let file = place.path(DAEMON_JSON);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let why =
        format!("migctl cannot tell whether another engine calls it: cannot read {DAEMON_JSON}: ");
    has(&removes(&place), &format!("kept the link {LINK}: {why}"));
    assert!(place.is_linked(LINK));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    has(&removes(&place), "removed the link");
}
