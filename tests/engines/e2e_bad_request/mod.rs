//! Bad input from whoever asks: annotations, config.json, arguments. Each with its message, which
//! comes on standard error and as JSON in `--log`; and nothing has changed.

mod not_text;
mod unusable;

use testkit::prelude::*;
use testkit::refusal::refused;

#[test]
fn requests() {
    let setup = Setup::of(Low::Runc);
    for (slice, line) in testkit::rows! {
        "1g.5gb" =>
            "cannot allocate 1g.5gb: no GPU offers the profile; hint: request one of 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb (nearest first)";
        "8g.80gb" =>
            "cannot allocate 8g.80gb: no GPU offers the profile; hint: request one of 7g.80gb, 4g.40gb, 3g.40gb, 2g.20gb, 1g.20gb, 1g.10gb, 1g.10gb+me (nearest first)";
        "0Gi" =>
            r#"annotation runmig.dev/slice: "0Gi" asks for no memory; hint: ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none"#;
        "-1" =>
            r#"annotation runmig.dev/slice: "-1" is neither a profile nor an amount of memory; hint: ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none"#;
        "20" => r#"annotation runmig.dev/slice: "20" has no unit; hint: write 20Gi"#;
        "1.5Gi" =>
            r#"annotation runmig.dev/slice: "1.5Gi" is neither a profile nor an amount of memory; hint: write 1536Mi"#;
        "" =>
            r#"annotation runmig.dev/slice: "" asks for nothing; hint: ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none"#;
        "all" =>
            r#"annotation runmig.dev/slice: "all" is neither a profile nor an amount of memory; hint: ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none"#;
        "1g.10gb,1g.10gb" =>
            "annotation runmig.dev/slice: 1g.10gb stands there twice, and a list names alternatives to one slice; hint: ask for one larger slice, or run a container for each";
        "90Gi" =>
            "cannot allocate 90Gi: no profile has 90Gi of memory; hint: request at most 7g.80gb, which has 80640 MiB";
        "99999999999999999999Gi" =>
            r#"annotation runmig.dev/slice: "99999999999999999999Gi" is more memory than can be counted; hint: ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none"#;
        "1g.10gb," =>
            r#"annotation runmig.dev/slice: "" asks for nothing; hint: ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none"#;
        "1g.10gb*0" =>
            r#"annotation runmig.dev/slice: "1g.10gb*0" asks for no number of slices from 1 to 64; hint: write it behind the slice: 1g.10gb*2"#;
        "1g.10gb*2" =>
            "1g.10gb*2 asks for several slices, and CUDA uses one MIG device in a process; hint: ask for one larger slice, or run a container for each; where a container's processes share them out, policy.slices_per_container allows several";
        "\u{1b}[2J" =>
            r#"annotation runmig.dev/slice: "\u{1b}[2J" is neither a profile nor an amount of memory; hint: ask for a profile (1g.10gb), an amount of memory (20Gi, 5000Mi) or none"#;
    } {
        refused(&setup, &setup.asking(slice, "true"), line);
    }
    let words = "annotation runmig.dev/slice is 10485760 bytes long, more than 256";
    refused(&setup, &setup.asking(&"x".repeat(10 << 20), "true"), words);
}

#[test]
fn annotations_that_contradict_each_other() {
    let setup = Setup::of(Low::Runc);
    type Annotations<'a> = &'a [(&'a str, &'a str)];
    let table: [(Annotations, &str); 8] = [
        (
            &[("runmig.dev/slcie", "1g.10gb")],
            "annotation runmig.dev/slcie is unknown; hint: write runmig.dev/slice",
        ),
        (
            &[("runmig.dev/wait", "30s")],
            "annotation runmig.dev/wait needs runmig.dev/slice, runmig.dev/share or runmig.dev/gpu; hint: add runmig.dev/slice, runmig.dev/share or runmig.dev/gpu, or remove runmig.dev/wait",
        ),
        (
            &[
                ("runmig.dev/slice", "3g.40gb,1g.10gb"),
                ("runmig.dev/compute", "2"),
            ],
            "annotation runmig.dev/compute asks for at least 2 compute slices, and 1g.10gb in runmig.dev/slice has 1; hint: ask for a larger profile, or take runmig.dev/compute away",
        ),
        (
            &[("runmig.dev/slice", "20Gi"), ("runmig.dev/compute", "many")],
            r#"annotation runmig.dev/compute: "many" is not a number of compute slices; hint: write it as a whole number: 2"#,
        ),
        (
            &[("runmig.dev/slice", "1g.10gb"), ("runmig.dev/wait", "soon")],
            r#"annotation runmig.dev/wait: "soon" is not a duration; hint: write it as 30s or 2m"#,
        ),
        (
            &[("slice.runmig.dev/web", "1g.10gb")],
            "annotation slice.runmig.dev/web is for a container by name, but the engine gave this one no name; hint: use runmig.dev/slice",
        ),
        (
            &[
                ("runmig.dev/slice", "1g.10gb"),
                ("io.kubernetes.cri.container-name", "web"),
                ("io.kubernetes.container.name", "db"),
            ],
            r#"annotations io.kubernetes.container.name and io.kubernetes.cri.container-name contradict each other: "db" and "web""#,
        ),
        (
            &[
                ("runmig.dev/slice", "1g.10gb"),
                ("io.kubernetes.cri.container-type", "sandbox"),
                ("io.kubernetes.cri-o.ContainerType", "container"),
            ],
            r#"annotations io.kubernetes.cri-o.ContainerType and io.kubernetes.cri.container-type contradict each other: "container" and "sandbox""#,
        ),
    ];
    for (annotations, line) in table {
        let bundle = setup.bundle("true");
        for (key, value) in annotations {
            bundle.annotate(key, value);
        }
        refused(&setup, &bundle, line);
    }
}

#[test]
fn reports_no_room() {
    let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", 1));
    let sim = |verb, more: &[&str]| setup.sim(verb, &[&["--gpu", "0"], more].concat());
    for _ in 0..2 {
        sim("create", &["--profile", "3g.40gb"]);
    }
    let words = "cannot allocate 1g.10gb: too few memory slices are free (0 of 8 on 1 GPU, at most 0 on one); on GPU 0 GPU instance 1 (3g.40gb at 0:4), which runmig did not make, is in the way; hint: run migctl list --all to see the instances that runmig did not make, and destroy them with nvidia-smi mig -dci, then -dgi";
    refused(&setup, &setup.asking("1g.10gb", "true"), words);
    let words = "cannot allocate 40Gi (7g.80gb): too few memory slices are free (0 of 8 on 1 GPU, at most 0 on one); on GPU 0 GPU instance 1 (3g.40gb at 0:4), which runmig did not make, and GPU instance 2 (3g.40gb at 4:4), which runmig did not make, are in the way; hint: run migctl list --all to see the instances that runmig did not make, and destroy them with nvidia-smi mig -dci, then -dgi";
    refused(&setup, &setup.asking("40Gi", "true"), words);
    for instance in setup.machine.instances() {
        sim("destroy", &["--gi", &instance.gi.to_string()]);
    }
    // Every second place taken: much is free, and no place for two.
    for _ in 0..7 {
        sim("create", &["--profile", "1g.10gb"]);
    }
    for instance in setup.machine.instances() {
        if instance.start % 2 == 0 {
            sim("destroy", &["--gi", &instance.gi.to_string()]);
        }
    }
    let words = "cannot allocate 3g.40gb: the slices in the way cannot be moved (5 of 8 memory slices are free on 1 GPU, at most 5 on one); on GPU 0 GPU instance 12 (1g.10gb at 5:1), which runmig did not make, is in the way; hint: run migctl list --all to see the instances that runmig did not make, and destroy them with nvidia-smi mig -dci, then -dgi";
    refused(&setup, &setup.asking("3g.40gb", "true"), words);
}

#[test]
fn config_json() {
    let setup = Setup::of(Low::Runc);
    let asks = r#""annotations":{"runmig.dev/slice":"1g.10gb"}"#;
    // The rest of what could ask, and cannot be understood.
    for (text, line) in testkit::rows! {
        format!("{{{asks},") => "config.json is cut off: EOF while parsing a value at line 1 column 46";
        format!("{{{asks}}}") => "config.json has no process: no slice can be put into it";
        format!("{{{asks},\"linux\":{{}}}}") => "config.json has no process: no slice can be put into it";
        format!("{{{asks},\"process\":{{}}}}") => "config.json has no linux: no slice can be put into it";
        format!("{{{asks},\"process\":[],\"linux\":{{}}}}") => "process in config.json is not an object";
        format!("{{{asks},\"process\":{{}},\"linux\":7}}") => "linux in config.json is not an object";
        "{\"annotations\":{\"runmig.dev/slice\":1}}".to_owned() =>
            "cannot tell from config.json whether the container asks for a slice: runmig.dev/slice is not a string; hint: write each annotation once, as a string under the key annotations";
    } {
        let bundle = setup.bundle("true");
        std::fs::write(bundle.file(), text).unwrap();
        refused(&setup, &bundle, line);
    }
    // The low-level runtime refuses calls that do not ask.
    for text in [
        "",
        "not json",
        "[]",
        "{}",
        "{\"annotations\":[]}",
        "\"runmig.dev/slice\"",
        "[\"runmig.dev/slice\"]",
        "{\"annotations\":[\"runmig.dev/slice\"]}",
        "{\"linux\":",
    ] {
        let bundle = setup.bundle("true");
        std::fs::write(bundle.file(), text).unwrap();
        let arguments = ["create", "--bundle", bundle.as_str(), "c"];
        let (ours, bare) = (setup.runmig(&arguments), said(&mut setup.bare(&arguments)));
        assert_eq!(ours.status.code(), bare.status.code());
        assert!(!ours.status.success(), "{text}");
        assert_eq!(bundle.bytes(), text.as_bytes());
    }
    let bundle = setup.asking("1g.10gb", "true");
    std::fs::remove_file(bundle.file()).unwrap();
    let words = "cannot find config.json in bundle {bundle}";
    refused(&setup, &bundle, words);
}

#[test]
fn refuses_containers_that_see_more() {
    let setup = Setup::of(Low::Runc);
    let rules = |rules: Value| {
        let bundle = setup.asking("1g.10gb", "true");
        bundle.edit(|config| config["linux"]["resources"]["devices"] = rules);
        bundle
    };
    let everything = json!([{"allow": true, "access": "rwm"}]);
    let words = "device rule linux.resources.devices[0] (allow a *:* rwm) lets the container open NVIDIA devices that are not in its slice, 195:1 for one; hint: run it unprivileged, with rules for the devices that it needs";
    refused(&setup, &rules(everything), words);
    let characters = json!([
        {"allow": false, "access": "rwm"},
        {"allow": true, "type": "c", "access": "rw"},
    ]);
    let words = "device rule linux.resources.devices[1] (allow c *:* rw) lets the container open NVIDIA devices that are not in its slice, 195:1 for one; hint: run it unprivileged, with rules for the devices that it needs";
    refused(&setup, &rules(characters), words);
    let bundle = setup.asking("1g.10gb", "true");
    bundle.edit(|config| {
        let options = ["rbind"];
        let mount =
            json!({"destination": "/host", "type": "bind", "source": "/dev", "options": options});
        config["mounts"].as_array_mut().unwrap().push(mount);
    });
    let words = "mount of /dev at /host gives the container the devices of the host; hint: mount the devices that it needs, not /dev";
    refused(&setup, &bundle, words);
}

/// Arguments that look like a create and cannot be understood are not passed on: they could be one.
#[test]
fn arguments() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.asking("1g.10gb", "true");
    for arguments in [
        &["create"][..],
        &["create", "--bundle"],
        &["create", "--nonsense", "--bundle", bundle.as_str(), "c"],
        &["--nonsense", "create", "--bundle", bundle.as_str(), "c"],
        &["create", "--bundle", "/nowhere", "c"],
    ] {
        let told = setup.runmig(arguments);
        assert!(!told.status.success(), "{told:?}");
        setup.nothing_is_left();
    }
}

/// And good input that looks odd.
#[test]
fn accepts_linked_bundle() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.asking("1g.10gb", "true");
    let before = bundle.bytes();
    let link = setup.path("link");
    std::os::unix::fs::symlink(&bundle.path, &link).unwrap();
    let id = unique();
    let link = link.to_str().unwrap();
    setup.runmig(&["create", "--bundle", link, &id]).ok();
    assert_eq!(setup.the_lease()["bundle"], bundle.as_str());
    setup.ends(&[&id]);
    assert_eq!(bundle.bytes(), before);
}
