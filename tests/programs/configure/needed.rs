//! A removal under containers that need the handler for their end, and beside others that do not.

use testkit::prelude::*;

/// An engine with its version, and the root and the bundle of a container of its.
type Case = (&'static str, &'static str, &'static str, &'static str);

const CASES: [Case; 3] = testkit::rows! {
    "crio", "crio version 1.36.3", "runmig-oci" => "overlay-containers/c/userdata";
    "podman", "podman version 5.8.3", "runc" => "vfs-containers/c/userdata";
    "containerd", "containerd x v2.3.2 x", "k8s.io" => "io.containerd.runtime.v2.task/k8s.io/c";
};

/// Failure: a handler is removed while its engine runs a container with a slice
#[test]
fn removal_refuses_under_containers() {
    let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", 1));
    fs::create_dir_all(setup.path("engines")).unwrap();
    let configure = |(engine, version, ..): Case, more: &[&str]| {
        let path = |name: &str| setup.path("engines").join(name).display().to_string();
        let (program, main) = (path(engine), path(&format!("{engine}.main")));
        let drop_in = path(&format!("{engine}.conf"));
        let says = format!("[ \"$1\" != --version ] || exec echo {version}");
        script(program.as_ref(), &says);
        let arguments = [
            &["configure", engine, "--executable", &program][..],
            &["--engine-config", &main, "--drop-in", &drop_in],
            more,
        ];
        (setup.migctl(&arguments.concat()), drop_in)
    };
    for case in CASES {
        let (engine, _, root, bundle) = case;
        let bundle = Bundle::new(&setup.path(bundle), "exec sleep 1000");
        bundle.annotate("runmig.dev/slice", "1g.10gb");
        let id = unique();
        let create = ["create", "-b", bundle.as_str(), &id];
        said(&mut setup.under(root, &create)).ok();
        for other in CASES {
            configure(other, &[]).0.ok();
            let (said, drop_in) = configure(other, &["--remove"]);
            if other.0 != engine {
                said.ok();
                continue;
            }
            let words = format!("cannot remove the handler runmig: container {id} has 1g.10gb");
            said.refused_for(&words);
            assert!(fs::exists(drop_in).unwrap());
        }
        said(&mut setup.under(root, &["delete", "--force", &id])).ok();
        let (said, drop_in) = configure(case, &["--remove"]);
        said.ok();
        assert!(!fs::exists(drop_in).unwrap());
    }
    // A shim of containerd writes down the program that it calls, and CRI-O has a root for each handler.
    let [crio, _, containerd] = CASES;
    for (case, root, needs) in [
        (containerd, "k8s.io", "runmig-1g"),
        (crio, "runmig-1g-oci", "runmig-1g"),
        (containerd, "k8s.io", ""),
    ] {
        let id = unique();
        let bundle = Bundle::new(&setup.path(&format!("{id}/{}", case.3)), "exec sleep 1000");
        bundle.annotate("runmig.dev/slice", "1g.10gb");
        if case == containerd {
            let program = format!("/usr/local/bin/{needs}");
            fs::write(bundle.path.join("runtime"), program).unwrap();
        }
        said(&mut setup.under(root, &["create", "-b", bundle.as_str(), &id])).ok();
        for name in ["runmig", "runmig-1g", "runmig-2g"] {
            let (said, _) = configure(case, &["--remove", "--name", name]);
            if needs.is_empty() || name == needs {
                let line = said.refused();
                let why = format!("container {id} has 1g.10gb");
                has(&line, &format!("cannot remove the handler {name}: {why}"));
                has(&line, "may need this handler to end it");
            } else {
                said.ok();
            }
        }
        said(&mut setup.under(root, &["delete", "--force", &id])).ok();
    }
    setup.nothing_is_left();
}
