//! config.json as others read it: Go takes keys in any case and merges those that occur twice, crun
//! takes the first of two and ends a text at a NUL. A container with a slice must not be another one
//! to them than to runmig. One without a slice is none of runmig's business, however odd its file is.

use crate::escapes::on_each;
use testkit::prelude::*;

/// Text after the opening brace of an object that the path leads to.
fn insert(bundle: &Bundle, path: &[&str], text: &str) {
    let config = String::from_utf8(bundle.bytes()).unwrap();
    let mut at = 1;
    for key in path {
        let key = format!("\"{key}\":");
        at += config[at..].find(&key).expect("the key") + key.len() + 1;
    }
    let is_empty = config[at..].starts_with(['}', ']']);
    let comma = if is_empty { "" } else { "," };
    let config = format!("{}{text}{comma}{}", &config[..at], &config[at..]);
    fs::write(bundle.file(), config).unwrap();
}

#[track_caller]
fn refused(setup: &Setup, bundle: &Bundle, words: &str) {
    let before = bundle.bytes();
    for verb in ["create", "run"] {
        let make = [verb, "-b", bundle.as_str(), &unique()];
        setup.runmig(&make).refused_for(words);
        assert!(bundle.bytes() == before);
        setup.nothing_is_left();
    }
}

/// Failure: runc, crun and runmig read `config.json` differently: keys in another case or twice, a NUL
#[test]
fn refuses_keys_that_go_reads() {
    on_each(|setup| {
        let all = r#"{"allow":true,"access":"rwm"}"#;
        for (path, text, words) in testkit::rows! {
            &[][..], &format!(r#""Linux":{{"resources":{{"devices":[{all}]}}}}"#)[..] => "Linux is linux to some";
            &[], r#""Mounts":[]"# => "Mounts is mounts to some";
            &["linux"], r#""Devices":[]"# => "linux.Devices is devices";
            &["linux", "resources"], &format!(r#""DEVICES":[{all}]"#) => "linux.resources.DEVICES is devices";
            &["mounts"], r#"{"destination":"/x","Type":"bind","Source":"/dev"}"# => "mounts.Type is type";
            &["process", "user"], r#""\u0055ID":0"# => "process.user.UID is uid";
            &["linux"], "\"re\u{17f}ources\":{}" => "linux.re\u{17f}ources is resources";
            &[], r#""linux":{"namespaces":[]}"# => "linux occurs twice";
            &["process"], r#""env":["NVIDIA_VISIBLE_DEVICES=all"]"# => "process.env occurs twice";
            &[], r#""x":{"a":1,"a":2}"# => "x.a occurs twice";
            &["mounts"], r#"{"destination":"/x","type":"bind\u0000","source":"/dev"}"# => "mounts.type holds a NUL";
            &["linux"], r#""devices\u0000":[]"# => "linux.devices\\u{0} holds a NUL";
        } {
            let bundle = setup.asking("1g.10gb", "true");
            insert(&bundle, path, text);
            refused(setup, &bundle, words);
        }
    });
}

/// Go finds the request, so it is one: such a container must not start without its slice.
#[test]
fn refuses_requests_that_only_go_reads() {
    on_each(|setup| {
        let ours = r#"{"runmig.dev/slice":"1g.10gb"}"#;
        for (text, words) in testkit::rows! {
            format!(r#""Annotations":{ours}"#) => "Annotations is annotations in";
            format!("\"annotation\u{17f}\":{ours}") => "is annotations in another case";
            format!(r#""annotations":{ours},"annotations":{{}}"#) => "annotations occurs twice";
            format!(r#""annotations":{{}},"annotations":{ours}"#) => "annotations occurs twice";
            r#""annotations":{"\u0072unmig.dev/slice":"1g.10gb","runmig.dev/slice":"none"}"#.to_owned() =>
                "runmig.dev/slice occurs twice";
        } {
            let bundle = setup.bundle("true");
            insert(&bundle, &[], &text);
            refused(setup, &bundle, words);
        }
        // text after the first value is nothing to Go, and no slice can be given beside it
        let bundle = setup.asking("1g.10gb", "true");
        fs::write(bundle.file(), [&bundle.bytes()[..], b" x"].concat()).unwrap();
        let words = "config.json is not JSON: trailing characters";
        refused(setup, &bundle, words);
    });
}

/// The low-level runtime alone and behind runmig: the same word, the same end.
#[track_caller]
fn passed(setup: &Setup, bundle: &Bundle) -> bool {
    let before = bundle.bytes();
    let run = |mut command: Command| {
        let id = unique();
        said(command.args(["run", "-b", bundle.as_str(), &id]))
    };
    let (ours, bare) = (run(setup.command(&[])), run(setup.bare(&[])));
    assert_eq!(ours.stdout, bare.stdout, "{ours:?}");
    assert_eq!(ours.status.code(), bare.status.code(), "{ours:?}");
    assert!(!ours.stderr.contains("runmig: "), "{ours:?}");
    assert!(bundle.bytes() == before);
    setup.nothing_is_left();
    ours.stdout == "RUNS\n"
}

/// Failure: the `config.json` of a container that does not ask is damaged, long or not UTF-8
#[test]
fn passes_odd_files_without_a_request() {
    on_each(|setup| {
        let plain = || setup.bundle("echo RUNS");
        let is_runc = setup.low == Low::Runc;

        let bundle = plain();
        insert(&bundle, &["process", "env"], "\"A=_runmig\"");
        let bytes = bundle.bytes();
        let at = bytes.windows(3).position(|w| w == b"A=_").unwrap() + 2;
        let broken = [&bytes[..at], b"\xff", &bytes[at..]].concat();
        fs::write(bundle.file(), broken).unwrap();
        assert_eq!(passed(setup, &bundle), is_runc, "no UTF-8");

        let bundle = plain();
        let bytes = bundle.bytes();
        fs::write(bundle.file(), [&bytes[..], b" runmig"].concat()).unwrap();
        assert_eq!(passed(setup, &bundle), is_runc, "text behind it");

        for (text, runs) in [
            (r#""annotations":{"a":"b","a":"c","x":"runmig"}"#, true),
            (r#""annotations":{"a":null,"x":"runmig"}"#, is_runc),
            (r#""annotations":{"a":"\ud800","x":"runmig"}"#, true),
            (r#""annotations":{"a":1,"x":"runmig"}"#, false),
            (r#""Annotations":{"x":"runmig"},"Linux":null"#, true),
            (r#""annotations":null,"x":["\u0072unmig.dev/slice"]"#, true),
        ] {
            let bundle = plain();
            insert(&bundle, &[], text);
            assert_eq!(passed(setup, &bundle), runs, "{text}");
        }

        // longer than what is parsed, so the word must not be in it
        let bundle = plain();
        bundle.edit(|config| config["linux"]["cgroupsPath"] = format!("/e2e-{}", unique()).into());
        let bytes = bundle.bytes();
        fs::write(bundle.file(), [&vec![b' '; 17 << 20][..], &bytes].concat()).unwrap();
        assert!(passed(setup, &bundle), "a long file");
    });
}
