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
    let kept = "kept the link /usr/local/bin/runmig-a100: /srv/more/1.toml names it";
    has(&removes(&place), kept);
    // A longer name is another's.
    let longer = format!("x = \"{LINK}0\"\ny = \"my-runmig-a100\"\n");
    place.write(second, &longer);
    has(&removes(&place), "removed the link");
    place.write(first, "imports = [\"/srv/*/?.toml\"]\n");
    let why = "migctl cannot tell whether another engine calls it: cannot follow the imports of";
    let pattern = "migctl does not know the pattern /srv/*/?.toml";
    has(&removes(&place), &format!("{why} {first}: {pattern}"));
    assert!(place.is_linked(LINK));
}

#[test]
fn link_stays_when_unreadable() {
    let place = podman();
    place.write(DAEMON_JSON, "{}");
    let file = place.path(DAEMON_JSON);
    chmod(&file, 0o666);
    let why = "migctl cannot tell whether another engine calls it: cannot read";
    let kept = format!("kept the link {LINK}: {why} {DAEMON_JSON}: ");
    has(&removes(&place), &kept);
    assert!(place.is_linked(LINK));
    chmod(&file, 0o644);
    has(&removes(&place), "removed the link");
}
