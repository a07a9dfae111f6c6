//! Containers that ask by a CDI device: `--device runmig.dev/slice=1g.10gb`.

use testkit::cri::{Cri, Engine};
use testkit::devices::{hook, with_folder, write};
use testkit::docker::Docker;
use testkit::images::{self, Says, archive_of};
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
    for keeps_original in [true, false] {
        let bundle = asking(&setup, &["slice=1g.10gb"]);
        bundle.annotate("runmig.dev/wait", "10s");
        let (first, second) = (unique(), unique());
        setup.create(&bundle, &first);
        let kept: Vec<(PathBuf, Vec<u8>)> = { bundle.names().into_iter() }
            .filter(|name| name.starts_with("config.json"))
            .map(|name| Path::new(bundle.as_str()).join(name))
            .map(|file| (file.clone(), fs::read(&file).unwrap()))
            .filter(|(file, _)| keeps_original || file.ends_with("config.json"))
            .collect();
        assert_eq!(kept.len(), 1 + usize::from(keeps_original));
        setup.delete(&first);
        for (file, bytes) in kept {
            fs::write(&file, bytes).unwrap();
            chmod(&file, 0o600);
        }
        setup.create(&bundle, &second);
        assert_eq!(setup.the_lease()["request"], "1g.10gb");
        setup.ends(&[second]);
    }
}

/// A claim's hook at the end alone asks for nothing.
#[test]
fn passes_on_what_asks_for_nothing() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.bundle(SHOW);
    bundle.edit(|config| {
        let args = ["runmig-claim", "detach", "--claim", "a", "--device", "d"];
        config["hooks"]["poststop"] =
            json!([{"path": setup.program("runmig-claim"), "args": args}]);
    });
    assert_eq!(nodes(&setup.run(&bundle).stdout).len(), 0);
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
    let lone = asking(&setup, &["wait=1m"]);
    lone.annotate("runmig.dev/slice", "none");
    let named = asking(&setup, &["slice=1g.10gb"]);
    named.set_env(&["NVIDIA_VISIBLE_DEVICES=runmig.dev/slice=1g.10gb"]);
    for (bundle, words) in testkit::rows! {
        asking(&setup, &["gpu=1", "gpu=2"]) =>
            "two requests: device runmig.dev/gpu=1, and device runmig.dev/gpu=2";
        asking(&setup, &["wait=1m"]) => "annotation runmig.dev/wait needs";
        lone => "annotation runmig.dev/slice: \"none\"";
        named => "cannot tell whether the user or the image asks";
    } {
        has(&setup.refused(&bundle), words);
    }
    setup.nothing_is_left();
}

/// Two devices that differ are a list of two, if the policy permits it.
#[test]
fn different_slices_are_given_together() {
    for low in [Low::Runc, Low::Crun] {
        let setup = Setup::of(low);
        let hooks = ["slice=1g.10gb", "slice=2g.20gb", "slice=1g.10gb"];
        let hooks = hooks.map(|asked| hook(&setup, asked));
        let by_device = marked(&setup, &hooks, SHOW);
        let by_annotation = setup.asking("2g.20gb&1g.10gb", SHOW);
        let by_both = marked(&setup, &hooks, SHOW);
        by_both.annotate("runmig.dev/slice", "1g.10gb & 2g.20gb");
        for bundle in [&by_device, &by_annotation, &by_both] {
            setup.configure("policy.slices_per_container = 1");
            let words = "where a container's processes share them out, policy.slices_per_container allows several";
            has(&setup.refused(bundle), words);
            setup.configure("policy.slices_per_container = 2");
            let saw = setup.run(bundle).stdout;
            let uuids: BTreeSet<&str> = visible(&saw).unwrap().split(',').collect();
            let are_slices = uuids.iter().all(|uuid| uuid.starts_with("MIG-"));
            assert!(uuids.len() == 2 && are_slices, "{saw}");
            // A node of each GPU instance, and of each compute instance.
            let seen = nodes(&saw);
            let caps = seen.keys().filter(|name| name.contains("cap"));
            assert_eq!(caps.count(), 4, "{saw}");
            setup.nothing_is_left();
        }
        let (_, id) = setup.made("7g.80gb*2", "exec sleep 1000");
        let words = "cannot allocate 2g.20gb&1g.10gb: none for 2g.20gb: too few";
        has(&setup.refused(&by_device), words);
        setup.ends(&[id]);
    }
}

/// What another program than the installed one asks, no CDI file of runmig has asked.
#[test]
fn accepts_no_other_hook() {
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
        json!({"path": "/bin/true", "args": ["runmig-hook", "--lease", "x", "--asked", "slice=1g.10gb"]}),
    ] {
        for hooks in [vec![odd.clone()], vec![good.clone(), odd.clone()]] {
            let line = setup.refused(&marked(&setup, &hooks, "true"));
            has(&line, "cannot accept hook ");
        }
    }
    for stage in
        "prestart createContainer startContainer poststart poststop CreateRuntime".split(' ')
    {
        let bundle = setup.bundle("true");
        bundle.edit(|config| config["hooks"][stage] = json!([good]));
        let words = format!("in {stage} of config.json");
        has(&setup.refused(&bundle), &words);
    }
    setup.nothing_is_left();
}

#[test]
fn refuses_restore_and_sandbox() {
    let setup = Setup::of(Low::Runc);
    let bundle = asking(&setup, &["slice=1g.10gb"]);
    let restore = ["restore", "-b", bundle.as_str(), &unique()];
    has(&setup.runmig(&restore).refused(), "cannot be restored");
    for kind in
        ["cri.container-type", "cri-o.ContainerType"].map(|kind| format!("io.kubernetes.{kind}"))
    {
        let bundle = asking(&setup, &["slice=1g.10gb"]);
        bundle.annotate(&kind, "sandbox");
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
        let said = said(&mut run);
        assert!(!said.status.success());
        said.warns(if low.is_crun() {
            REQUEST_HOOK
        } else {
            NOT_RUNMIG
        });
    }
}

#[test]
fn podman_run_asks() {
    on_each(Setup::of, |setup, podman| {
        let folder = setup.path("cdi");
        write(setup, &folder);
        let run = |options: &[&str]| {
            let rootfs = podman.rootfs();
            let shows = ["--rootfs", &rootfs, "/bin/sh", "-c", SHOW];
            let all = [&["run", "--rm"], options, &shows].concat();
            said(&mut with_folder(&folder, &podman.command(&all)))
        };
        is_one_slice(setup, &run(&["--device", DEVICE]).ok().stdout);
        let none = run(&["--device", DEVICE, "--annotation", "runmig.dev/slice=none"]);
        has(&none.stderr, "the container has two requests");
        podman.import(testkit::podman::IMAGE, &["CMD [\"/bin/sleep\", \"1000\"]"]);
        let pod = |words: &[&str]| {
            let all = [&["pod"], words].concat();
            said(&mut with_folder(&folder, &podman.command(&all)))
        };
        pod(&["create", "--device", DEVICE, "--name", "p"]).ok();
        has(&pod(&["start", "p"]).stderr, "is given to the pod");
        // podman's monitor may still end.
        until("the pod is gone", || {
            pod(&["rm", "--force", "p"]).status.success()
        });
        setup.nothing_is_left();
        table::passed(&podman.name(), "a slice by device");
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
        table::passed(&docker.name(), "a slice by device");
    });
}

/// Writes an image, under the name of the usual one, that tries every way of an image to name a device or a hook.
fn image_that_asks(setup: &Setup, name: &str) -> PathBuf {
    let hook = setup.program(REQUEST_HOOK);
    let args = ["runmig-request", "slice=1g.10gb"];
    let edits = json!({"hooks": [{"hookName": "createRuntime", "path": hook, "args": args}]});
    let cdi = json!({
        "cdiVersion": "0.5.0", "kind": "runmig.dev/slice",
        "devices": [{"name": "1g.10gb", "containerEdits": edits}],
    });
    let always = json!({
        "version": "1.0.0", "when": {"always": true}, "stages": ["createRuntime"],
        "hook": {"path": hook, "args": args},
    });
    let files = testkit::rows! {
        "etc/cdi/runmig-slice.json" => cdi.to_string();
        "run/cdi/runmig-slice.json" => cdi.to_string();
        "usr/share/containers/oci/hooks.d/x.json" => always.to_string();
        "etc/containers/oci/hooks.d/x.json" => always.to_string();
    };
    let variables =
        ["CDI_DEVICES", "NVIDIA_VISIBLE_DEVICES"].map(|name| format!("{name}={DEVICE}"));
    let keys = [
        "cdi.k8s.io/x",
        "io.kubernetes.cri-o.Devices",
        "devices.crio.io",
    ];
    let says = Says {
        environment: &variables.each_ref().map(String::as_str),
        notes: &keys.map(|key| (key, DEVICE)),
        files: &files,
    };
    archive_of(&setup.path("image-that-asks"), name, &says)
}

fn got_nothing(setup: &Setup, saw: &str) {
    assert!(saw.contains("VISIBLE="), "{saw}");
    assert_eq!(nodes(saw).len(), 0, "{saw}");
    assert_eq!(setup.leases(), [Value::Null; 0]);
}

/// An image cannot ask.
#[test]
fn image_names_no_device_to_podman() {
    on_each(Setup::of, |setup, podman| {
        let name = "localhost/asks:1";
        let archive = image_that_asks(setup, name);
        let load = ["load", "--input", archive.to_str().unwrap()];
        podman.podman(&load).ok();
        let folder = setup.path("cdi");
        write(setup, &folder);
        let run = podman.command(&["run", "--rm", "--entrypoint=", name, "/bin/sh", "-c", SHOW]);
        got_nothing(setup, &said(&mut with_folder(&folder, &run)).ok().stdout);
    });
}

#[test]
fn image_names_no_device_to_docker() {
    docker::with(false, |setup, docker: &mut Docker| {
        write(setup, &docker.path("cdi"));
        let name = format!("docker.io/library/{}", docker::IMAGE);
        let archive = fs::read(image_that_asks(setup, &name)).unwrap();
        docker.load(&archive);
        // The image's own first program stays.
        let id = docker.create_with(&[], "", json!({"Runtime": "runmig"}));
        docker.post(&id, "start").ok();
        let saw = docker.exec(&id, SHOW);
        has(&saw, "VISIBLE=runmig.dev/slice");
        got_nothing(setup, &saw);
        docker.remove(&id);
    });
}

#[test]
fn image_names_no_device_in_a_pod() {
    for engine in [Engine::Containerd1, Engine::Containerd2, Engine::Crio] {
        let setup = Setup::of(Low::Runc);
        setup.configure("policy.cdi_in_pods = true");
        let Some(cri) = Cri::start(engine, &setup) else {
            continue;
        };
        write(&setup, &cri.path("cdi"));
        let archive = image_that_asks(&setup, images::IMAGE);
        cri.import(&archive);
        let pod = cri.pod(&[]);
        let id = cri.run(&pod, "web", &format!("{SHOW}; exec sleep 1000"));
        until("it printed", || cri.logs(&id).contains("VISIBLE="));
        has(&cri.logs(&id), "VISIBLE=runmig.dev/slice");
        got_nothing(&setup, &cri.logs(&id));
        cri.remove_all();
    }
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
            table::passed(&cri.name(), "a slice by device");
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
        let words = "named.toml: the container has its own request, runmig.dev/";
        create("fixed = true", asked, "refused").refused_for(words);
    }
    setup.nothing_is_left();
}
