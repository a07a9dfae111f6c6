//! Containers that ask by a CDI device: `--device runmig.dev/slice=1g.10gb`.

use testkit::cri::{Cri, Engine};
use testkit::devices::{hook, with_folder, write};
use testkit::docker::Docker;
use testkit::podman::on_each;
use testkit::prelude::*;
use testkit::{REQUEST_HOOK, docker};

const DEVICE: &str = "runmig.dev/slice=1g.10gb";
const NOT_RUNMIG: &str = "cannot give slice 1g.10gb: the runtime of this container is not runmig; hint: add --runtime \
     runmig, or make it the default with migctl configure ENGINE --set-as-default";

/// Returns a bundle with these hooks at createRuntime.
fn marked(setup: &Setup, hooks: &[Value], script: &str) -> Bundle {
    let bundle = setup.bundle(script);
    bundle.edit(|config| config["hooks"]["createRuntime"] = json!(hooks));
    bundle
}

fn asking(setup: &Setup, asked: &[&str]) -> Bundle {
    let hooks: Vec<Value> = asked.iter().map(|asked| hook(setup, asked)).collect();
    marked(setup, &hooks, "exec sleep 1000")
}

fn is_one_slice(setup: &Setup, saw: &str) {
    let uuid = visible(saw).unwrap_or_else(|| panic!("{saw}"));
    assert!(uuid.starts_with("MIG-"), "{saw}");
    assert!(nodes(saw).contains_key("nvidiactl"), "{saw}");
    setup.nothing_is_left();
}

#[test]
fn device_asks_as_annotation_does() {
    for low in [Low::Runc, Low::Crun] {
        let setup = Setup::of(low);
        for asked in [
            &["slice=1g.10gb"][..],
            &["slice=10Gi", "slice=10Gi", "wait=10s"],
        ] {
            let hooks: Vec<Value> = asked.iter().map(|asked| hook(&setup, asked)).collect();
            let bundle = marked(&setup, &hooks, SHOW);
            let before = bundle.bytes();
            is_one_slice(&setup, &setup.run(&bundle).stdout);
            assert_eq!(bundle.bytes(), before);
        }
        // An annotation that says the same, and one of a time to wait.
        let bundle = asking(&setup, &["slice=1g.10gb"]);
        bundle.annotate("runmig.dev/slice", "1g.10gb");
        bundle.annotate("runmig.dev/wait", "10s");
        let id = unique();
        setup.create(&bundle, &id);
        assert_eq!(setup.the_lease()["request"], "1g.10gb");
        let edited = bundle.config();
        assert_eq!(edited["hooks"]["createRuntime"], Value::Null, "{edited:#}");
        setup.ends(&[id]);
    }
}

/// Failure: runmig was killed in a create of a container that asks by a device, and the same bundle is used again
#[test]
fn finds_the_request_below_an_earlier_edit() {
    let setup = Setup::of(Low::Runc);
    let bundle = asking(&setup, &["slice=1g.10gb"]);
    let (first, second) = (unique(), unique());
    setup.create(&bundle, &first);
    let kept: Vec<(PathBuf, Vec<u8>)> = { bundle.names().into_iter() }
        .filter(|name| name.starts_with("config.json"))
        .map(|name| Path::new(bundle.as_str()).join(name))
        .map(|file| (file.clone(), fs::read(&file).unwrap()))
        .collect();
    assert_eq!(kept.len(), 2);
    setup.delete(&first);
    for (file, bytes) in kept {
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    setup.create(&bundle, &second);
    assert_eq!(setup.the_lease()["request"], "1g.10gb");
    setup.ends(&[second]);
}

#[test]
fn refuses_what_contradicts_a_device() {
    let setup = Setup::of(Low::Runc);
    let two = "the container has two requests: device runmig.dev/slice=1g.10gb, and ";
    for (key, value) in [
        ("runmig.dev/slice", "none"),
        ("runmig.dev/slice", "2g.20gb"),
        ("runmig.dev/gpu", "1"),
    ] {
        let bundle = asking(&setup, &["slice=1g.10gb"]);
        bundle.annotate(key, value);
        let said = setup.refused(&bundle);
        has(&said, &format!("{two}annotation {key}: \"{value}\""));
    }
    let both = asking(&setup, &["slice=1g.10gb", "slice=2g.20gb"]);
    has(
        &setup.refused(&both),
        &format!("{two}device runmig.dev/slice=2g.20gb"),
    );
    let lone = asking(&setup, &["wait=1m"]);
    has(&setup.refused(&lone), "annotation runmig.dev/wait needs");
    setup.nothing_is_left();
}

/// What another program than the installed one asks, no CDI file of runmig has asked.
#[test]
fn believes_no_other_hook() {
    let setup = Setup::of(Low::Runc);
    let link = setup.path("bin").join("link");
    symlink(REQUEST_HOOK, &link).unwrap();
    let good = hook(&setup, "slice=1g.10gb");
    let with = |key: &str, value: Value| {
        let mut hook = good.clone();
        hook[key] = value;
        hook
    };
    let at = |path: &Path| with("path", json!(path));
    let copy = setup.path("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(setup.program(REQUEST_HOOK), copy.join(REQUEST_HOOK)).unwrap();
    for odd in [
        at(&link),
        at(&copy.join(REQUEST_HOOK)),
        at(Path::new("/bin/true")),
        at(&setup.path("bin/../bin").join(REQUEST_HOOK)),
        with("args", json!(["runmig-request", "slice=1g.10gb", "x"])),
        with("args", json!(["runmig-request"])),
        with("args", json!(["runmig-request", "slice=none"])),
        with("args", json!(["runmig-request", "model=1g.10gb"])),
        with("args", json!(["/bin/runmig-request", "slice=1g.10gb"])),
        with("env", json!(["A=1"])),
        with("more", json!(true)),
    ] {
        for hooks in [vec![odd.clone()], vec![good.clone(), odd.clone()]] {
            let line = setup.refused(&marked(&setup, &hooks, "true"));
            has(&line, "cannot believe hook ");
        }
    }
    for stage in [
        "prestart",
        "createContainer",
        "startContainer",
        "poststart",
        "poststop",
        "CreateRuntime",
    ] {
        let bundle = setup.bundle("true");
        bundle.edit(|config| config["hooks"][stage] = json!([good]));
        has(
            &setup.refused(&bundle),
            &format!("in {stage} of config.json"),
        );
    }
    setup.nothing_is_left();
}

#[test]
fn refuses_restore_and_sandbox() {
    let setup = Setup::of(Low::Runc);
    let bundle = asking(&setup, &["slice=1g.10gb"]);
    let restore = ["restore", "-b", bundle.as_str(), &unique()];
    has(&setup.runmig(&restore).refused(), "cannot be restored");
    for kind in [
        "io.kubernetes.cri.container-type",
        "io.kubernetes.cri-o.ContainerType",
    ] {
        let bundle = asking(&setup, &["slice=1g.10gb"]);
        bundle.annotate(kind, "sandbox");
        has(&setup.refused(&bundle), "give the device to a container");
    }
    setup.nothing_is_left();
}

/// Failure: a container asks by a device, and its runtime is not runmig
#[test]
fn hook_ends_the_create_of_another_runtime() {
    for low in [Low::Runc, Low::Crun] {
        let setup = Setup::of(low);
        let bundle = asking(&setup, &["slice=1g.10gb"]);
        let id = unique();
        let mut run = setup.bare(&["run", "-b", bundle.as_str(), &id]);
        let said = said(run.stdin(Stdio::null()));
        assert!(!said.status.success());
        let words = match low.is_crun() {
            true => REQUEST_HOOK,
            false => NOT_RUNMIG,
        };
        assert!(said.stderr.contains(words), "{}", said.stderr);
    }
}

#[test]
fn podman_run_asks() {
    on_each(Setup::of, |setup, podman| {
        let folder = setup.path("cdi");
        write(setup, &folder);
        let run = |options: &[&str]| {
            let rootfs = podman.rootfs();
            let all = [
                &["run", "--rm"],
                options,
                &["--rootfs", &rootfs, "/bin/sh", "-c", SHOW],
            ]
            .concat();
            said(&mut with_folder(&folder, &podman.command(&all)))
        };
        is_one_slice(setup, &run(&["--device", DEVICE]).ok().stdout);
        let seat = [
            "--device",
            "runmig.dev/slice=3g.40gb",
            "--device",
            "runmig.dev/share=1:4",
        ];
        assert!(!run(&seat).stderr.contains("unresolvable"));
        let none = run(&["--device", DEVICE, "--annotation", "runmig.dev/slice=none"]);
        has(&none.stderr, "the container has two requests");
        let pod = ["pod", "create", "--device", DEVICE, "--name", "p"];
        if said(&mut with_folder(&folder, &podman.command(&pod)))
            .status
            .success()
        {
            let start = said(&mut with_folder(
                &folder,
                &podman.command(&["pod", "start", "p"]),
            ));
            has(&start.stderr, "is given to the pod");
            podman.podman(&["pod", "rm", "--force", "p"]).ok();
        }
        setup.nothing_is_left();
    });
}

#[test]
fn docker_run_asks() {
    docker::with(false, |setup, docker: &mut Docker| {
        write(setup, &docker.path("cdi"));
        let host = |ids: &[&str]| json!({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ids}]});
        let id = docker.create_with(&[], &format!("{SHOW}; sleep 1000"), host(&[DEVICE, DEVICE]));
        docker.post(&id, "start").ok();
        until("it printed", || docker.logs(&id).contains("VISIBLE="));
        assert_eq!(setup.the_lease()["request"], "1g.10gb");
        docker.post(&id, "restart?t=0").ok();
        assert_eq!(setup.the_lease()["request"], "1g.10gb");
        docker.remove(&id);
        setup.nothing_is_left();
        let mut plain = host(&[DEVICE]);
        plain["Runtime"] = json!("runc");
        let id = docker.create_with(&[], "true", plain);
        has(&docker.post(&id, "start").text(), NOT_RUNMIG);
        docker.remove(&id);
    });
}

/// In a pod only a device plugin or a DRA driver names CDI devices, unless the policy permits it.
#[test]
fn pods_ask_if_policy_permits() {
    for engine in [Engine::Containerd2, Engine::Crio] {
        for permits in [false, true] {
            let setup = Setup::of(Low::Runc);
            setup.configure(&format!("policy.cdi_in_pods = {permits}"));
            let Some(cri) = Cri::start(engine, &setup) else {
                continue;
            };
            write(&setup, &cri.path("cdi"));
            let pod = cri.pod(&[]);
            // Of the container, as a device plugin may have the kubelet set it.
            let device = [("cdi.k8s.io/plugin", DEVICE)];
            let ran = cri.try_run(&pod, "web", "exec sleep 1000", &device);
            match permits {
                true => {
                    ran.unwrap();
                    assert_eq!(setup.the_lease()["request"], "1g.10gb");
                }
                false => has(&ran.unwrap_err(), "annotate the pod with runmig.dev/slice"),
            }
            // The author of the pod names no device.
            let other = cri.pod(&[("cdi.k8s.io/plugin", DEVICE)]);
            cri.run(&other, "db", "exec sleep 1000");
            assert_eq!(setup.leases().len(), usize::from(permits));
            cri.remove_all();
            setup.nothing_is_left();
        }
    }
}

/// A device is the container's own request, which comes before that of its runtime. A wait alone refines the runtime's.
#[test]
fn device_comes_before_runtimes_request() {
    let setup = Setup::of(Low::Runc);
    let file = setup.path("named.toml");
    let create = |request: &str, asked: &str, id: &str| {
        fs::write(&file, format!("[request]\nslice = \"1g.10gb\"\n{request}")).unwrap();
        let bundle = asking(&setup, &[asked]);
        let mut create = setup.command(&["create", "-b", bundle.as_str(), id]);
        said(create.env("RUNMIG_CONFIG", &file))
    };
    create("", "slice=2g.20gb", "own").ok();
    assert_eq!(setup.lease("own")["profile"], "2g.20gb");
    create("", "wait=10s", "waits").ok();
    assert_eq!(setup.lease("waits")["profile"], "1g.10gb");
    create("fixed = true", "wait=10s", "fixed").ok();
    assert_eq!(setup.lease("fixed")["profile"], "1g.10gb");
    setup.ends(&["own", "waits", "fixed"]);
    for asked in ["slice=1g.10gb", "share=8Gi", "gpu=1"] {
        let line = create("fixed = true", asked, "refused").refused();
        has(&line, "named.toml: it asks itself, by runmig.dev/");
    }
    setup.nothing_is_left();
}
