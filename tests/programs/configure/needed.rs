//! A removal under containers that need the handler for their end, and beside others that do not.

use testkit::prelude::*;

/// An engine, the root and the bundle of a container of its, and the file of the registration.
struct Case {
    engine: &'static str,
    version: &'static str,
    root: &'static str,
    bundle: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        engine: "crio",
        version: "crio version 1.36.3",
        root: "runmig-oci",
        bundle: "overlay-containers/c/userdata",
    },
    Case {
        engine: "podman",
        version: "podman version 5.8.3",
        root: "runc",
        bundle: "vfs-containers/c/userdata",
    },
    Case {
        engine: "containerd",
        version: "containerd x v2.3.2 x",
        root: "k8s.io",
        bundle: "io.containerd.runtime.v2.task/k8s.io/c",
    },
];

/// Failure: a handler is removed while its engine runs a container with a slice
#[test]
fn removal_refuses_under_containers() {
    let Some(setup) = Setup::try_on(Low::Runc, Machine::new("A100-80GB", 1)) else {
        return;
    };
    fs::create_dir_all(setup.path("engines")).unwrap();
    let configure = |case: &Case, more: &[&str]| {
        let path = |name: &str| setup.path("engines").join(name).display().to_string();
        let (program, main) = (path(case.engine), path(&format!("{}.main", case.engine)));
        let drop_in = path(&format!("{}.conf", case.engine));
        let says = format!("[ \"$1\" != --version ] || exec echo {}", case.version);
        script(program.as_ref(), &says);
        let arguments = [
            &["configure", case.engine, "--executable", &program][..],
            &["--engine-config", &main, "--drop-in", &drop_in],
            more,
        ];
        (setup.migctl(&arguments.concat()), drop_in)
    };
    for case in &CASES {
        let bundle = Bundle::new(&setup.path(case.bundle), "exec sleep 1000");
        bundle.annotate("runmig.dev/slice", "1g.10gb");
        let id = unique();
        let create = ["create", "-b", bundle.as_str(), &id];
        said(&mut setup.under(case.root, &create)).ok();
        for other in &CASES {
            configure(other, &[]).0.ok();
            let (said, drop_in) = configure(other, &["--remove"]);
            if other.engine != case.engine {
                said.ok();
                continue;
            }
            let line = said.refused();
            let words = format!("cannot remove the handler runmig: container {id} has 1g.10gb");
            has(&line, &words);
            assert!(fs::exists(drop_in).unwrap());
        }
        said(&mut setup.under(case.root, &["delete", "--force", &id])).ok();
        let (said, drop_in) = configure(case, &["--remove"]);
        said.ok();
        assert!(!fs::exists(drop_in).unwrap());
    }
    setup.nothing_is_left();
}
