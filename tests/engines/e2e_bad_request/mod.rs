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
        "20" => r#"annotation runmig.dev/slice: "20" has no unit; hint: write 20Gi"#;
        "90Gi" =>
            "cannot allocate 90Gi: no profile has 90Gi of memory; hint: request at most 7g.80gb, which has 80640 MiB";
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
        format!("{{{asks}}}") => "config.json has no process: no GPU can be put into it";
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
