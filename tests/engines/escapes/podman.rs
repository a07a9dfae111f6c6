//! The same from podman's command line.

use crate::escapes::inside::{Shared, asking, none_opens, script};
use testkit::bundle::NODES;
use testkit::podman::on_each;
use testkit::prelude::*;

const ASK: &str = "--annotation=runmig.dev/slice=1g.10gb";

/// An image whose ENV asks for every GPU gets the slice of its container's request, or nothing without one.
#[test]
fn ignores_environment_of_image() {
    on_each(Setup::of, |setup, podman| {
        let env = [
            "ENV NVIDIA_VISIBLE_DEVICES=all",
            "ENV NVIDIA_MIG_CONFIG_DEVICES=all",
            "ENV NVIDIA_DRIVER_CAPABILITIES=all",
            "ENV LD_PRELOAD=/evil.so",
        ];
        podman.import("localhost/evil:1", &env);
        let run = |options: &[&str]| {
            let mut all = vec!["run", "--rm"];
            all.extend(options);
            let show = format!("{SHOW}; env | /bin/busybox grep NVIDIA");
            all.extend(["localhost/evil:1", "/bin/sh", "-c", &show]);
            podman.podman(&all).ok().stdout
        };
        let out = run(&[ASK]);
        assert!(visible(&out).unwrap().starts_with("MIG-"), "{out}");
        assert_eq!(nodes(&out).len(), NODES, "{out}");
        assert!(!out.contains("MIG_CONFIG"), "{out}");
        let out = run(&[]);
        assert_eq!(nodes(&out).len(), 0, "who does not ask gets nothing: {out}");
        setup.nothing_is_left();
    });
}

/// `--device`, `-v` and capabilities, as a user of podman has them.
#[test]
fn devices_and_volumes() {
    on_each(Setup::of, |setup, podman| {
        let shared = Shared::new(setup);
        let mut options = vec![ASK.to_owned(), "--rm".into(), "--cap-add=MKNOD".into()];
        let mut paths = Vec::new();
        for (at, (path, _)) in shared.nodes_on_host(&setup.path("host")).iter().enumerate() {
            options.push(format!("--device={}:/dev/d{at}", path.display()));
            options.push(format!("--volume={}:/tmp/v{at}", path.display()));
            paths.extend([format!("/dev/d{at}"), format!("/tmp/v{at}")]);
        }
        let folder = setup.path("host");
        options.push(format!("--volume={}:/tmp/folder", folder.display()));
        options.push(format!("--device-cgroup-rule=c {}:* rwm", shared.granted.0));
        paths.push("/tmp/folder/innocent0".into());
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        // The functions that try are in a bundle's script.
        let bundle = asking(setup, &script(&shared, &paths));
        let config = bundle.config();
        let script = config["process"]["args"][2].as_str().unwrap();
        let out = podman.run("run", &options, script).ok().stdout;
        none_opens(&shared, &out, &paths);
    });
}

#[test]
fn refuses_what_escapes() {
    on_each(Setup::of, |setup, podman| {
        for (options, words) in testkit::rows! {
            &["--privileged"][..] => "NVIDIA devices that it was not given";
            &["--device-cgroup-rule=c *:* rwm"] => "NVIDIA devices that it was not given";
            &["--volume=/dev:/innocent"] => "gives the container the devices of the host";
            // podman itself, for a runtime that is not called crun; else it would be us
            &["--cgroups=disabled"] => "ocgroups";
        } {
            let mut all = vec!["--rm", ASK];
            all.extend(options);
            let said = podman.run("run", &all, "echo it runs");
            assert!(!said.status.success() && said.stdout.is_empty(), "{said:?}");
            has(&said.stderr.to_lowercase(), &words.to_lowercase());
            setup.nothing_is_left();
        }
    });
}
