//! The whole path from podman's command line: the distribution's podman on runc and on crun, and a
//! current one, with the configuration that is shipped.

mod images;
mod named;
mod pods;
mod waits;
mod words;

use testkit::podman::{id, on_each};
use testkit::prelude::*;

const ASK: &str = "--annotation=runmig.dev/slice=1g.10gb";

/// No caller removes the container. Its conmon calls podman, which calls `delete`.
#[test]
fn releases_slice_of_ended_job() {
    on_each(Setup::of, |setup, podman| {
        let made = podman.run("run", &["--detach", ASK], "sleep 0.2").ok();
        until("the slice is back", || setup.leases().is_empty());
        setup.nothing_is_left();
        podman.podman(&["container", "exists", id(&made)]).ok();
        podman.podman(&["rm", id(&made)]).ok();
        table::passed(&podman.name(), "a job that ends by itself");
    });
}

/// podman calls the hooks of hooks.d itself, when the container is cleaned up; by then the slice is
/// back, and the hook, which has no lease id, finds nothing to do.
#[test]
fn runs_the_hooks_d_example() {
    on_each(Setup::of, |setup, podman| {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/hooks/runmig-poststop.json");
        let text = std::fs::read_to_string(file).unwrap();
        let mut hook: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(hook["hook"]["path"], "/usr/local/bin/runmig-hook");
        assert_eq!(hook["hook"]["args"], serde_json::json!(["runmig-hook"]));
        let (dir, seen) = (setup.path("hooks.d"), setup.path("seen"));
        std::fs::create_dir(&dir).unwrap();
        let spy = dir.join("spy");
        let body = format!(
            "cat >{0}; {1} --config {2} <{0} && echo called >>{0}",
            seen.display(),
            setup.program("runmig-hook").display(),
            setup.config().display()
        );
        script(&spy, &body);
        hook["hook"]["path"] = spy.to_str().unwrap().into();
        std::fs::write(dir.join("runmig.json"), hook.to_string()).unwrap();

        let hooks = format!("--hooks-dir={}", dir.display());
        let rootfs = podman.rootfs();
        for (annotation, calls) in [(ASK, true), ("--annotation=slice.example/x=1g.10gb", false)] {
            let _ = std::fs::remove_file(&seen);
            let mut run = podman.command(&[&hooks, "run", "--rm"]);
            run.args([annotation, "--rootfs", &rootfs, "true"]);
            testkit::said(&mut run).ok();
            let seen = std::fs::read_to_string(&seen).unwrap_or_default();
            assert_eq!(seen.contains("called"), calls, "{seen}");
            setup.nothing_is_left();
        }
    });
}
