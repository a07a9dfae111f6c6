//! The engines: their registration, their last start, and the hook among their mounts.

use super::breaking::{breaks_inside, repairs_inside};
use super::conflicts::process;
use super::programs::etc;
use super::setup;
use std::path::Path;
use testkit::runtimes::built;
use testkit::{Setup, skip};

/// An engine with the file in which migctl registers runmig.
const ENGINES: [(&str, &str, &str); 4] = [
    (
        "podman",
        "podman",
        "/etc/containers/containers.conf.d/50-runmig.conf",
    ),
    ("containerd", "containerd", "/etc/containerd"),
    ("crio", "crio", "/etc/crio/crio.conf.d"),
    ("docker", "dockerd", "/etc/docker/daemon.json"),
];

/// A script that registers runmig in an `/etc` of its own. None where the machine lacks the engine.
fn registered(setup: &Setup, engine: &str, program: &str) -> Option<String> {
    let usual = Path::new("/usr/bin").join(program);
    let found = [engine, "cri-o", "docker"]
        .iter()
        .find_map(|name| built(name, program));
    let Some(found) = Some(usual).filter(|path| path.exists()).or(found) else {
        skip(&format!("{program} is not there; run scripts/setup"));
        return None;
    };
    let folder = found.parent().unwrap().display();
    let etc = etc(setup);
    Some(format!(
        "{etc}
         PATH=$(dirname \"$0\"):{folder}:$PATH; export PATH
         migctl configure {engine} >/dev/null"
    ))
}

#[test]
fn names_stale_registration() {
    let Some(setup) = setup() else { return };
    for (engine, program, place) in ENGINES {
        let two = [(); 2].map(|()| registered(&setup, engine, program));
        let [Some(good), Some(bad)] = two else {
            continue;
        };
        let stale = "sed -i 's,/bin/runmig,/old/bin/runmig,'";
        let bad = format!(
            "{bad}\n{stale} $(grep -rl bin/runmig {place} /etc/containerd /etc/crio 2>/dev/null)"
        );
        let id = format!("engines.{engine}");
        let (text, repair) = breaks_inside(&setup, "engines", "warn", &id, [&good, &bad]);
        assert!(text.contains("is not that of this runmig"), "{text}");
        assert_eq!(repair, format!("migctl configure {engine}"));
        let again = [(); 2].map(|()| registered(&setup, engine, program).unwrap());
        let bad = format!("{}\n{}", again[1], bad.lines().last().unwrap());
        repairs_inside(&setup, "engines", [&again[0], &bad], &repair);
    }
}

#[test]
fn names_engine_older_than_its_files() {
    let Some(setup) = setup() else { return };
    let engine = process(&setup, "containerd");
    let with = |time: &str| {
        let registered = registered(&setup, "containerd", "containerd")?;
        let touch = format!("find /etc/containerd -type f -exec touch -d '{time}' '{{}}' ';'");
        Some(format!("{registered}\n{engine}\n{touch}"))
    };
    let (Some(good), Some(bad)) = (with("1 hour ago"), with("1 minute")) else {
        return;
    };
    let group = "engines,hooks";
    let id = "engines.containerd";
    let (text, repair) = breaks_inside(&setup, group, "warn", id, [&good, &bad]);
    assert!(
        text.contains("has run since before /etc/containerd"),
        "{text}"
    );
    assert!(repair.contains("restart containerd"), "{repair}");
}

/// An engine in a container, or with folders that its unit hides.
#[test]
fn names_engine_that_misses_the_hook() {
    let Some(setup) = setup() else { return };
    let engine = process(&setup, "containerd");
    let bin = setup.path("bin");
    let hidden = engine.replacen(
        &format!("{} 600", setup.path("containerd").display()),
        &format!(
            "unshare --mount sh -c 'mount -t tmpfs none {}; exec {} 600'",
            bin.display(),
            setup.path("containerd").display()
        ),
        1,
    );
    assert_ne!(engine, hidden);
    let with = |engine: &str| {
        let registered = registered(&setup, "containerd", "containerd")?;
        let touch = "find /etc/containerd -type f -exec touch -d '1 hour ago' '{}' ';'";
        Some(format!("{registered}\n{touch}\n{engine}"))
    };
    let (Some(good), Some(bad)) = (with(&engine), with(&hidden)) else {
        return;
    };
    let (text, repair) =
        breaks_inside(&setup, "engines,hooks", "fail", "hooks.seen", [&good, &bad]);
    assert!(text.starts_with("containerd (process "), "{text}");
    assert!(text.ends_with("/bin/runmig-hook"), "{text}");
    assert!(repair.ends_with("systemctl cat containerd"), "{repair}");
}
