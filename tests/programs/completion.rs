//! The completion of migctl: verbs, engines, and the ids, namespaces and profiles of the moment.

use testkit::prelude::*;

/// A machine with a container, and thus with an id and the profiles on record.
fn with_container() -> Setup {
    let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", 1));
    let bundle = setup.asking("1g.10gb", "true");
    bundle.annotate("io.kubernetes.cri.sandbox-namespace", "team-a");
    setup.create(&bundle, "train-7");
    setup
}

/// Returns the words that bash suggests after these words, the last of which is unfinished.
fn suggested(setup: &Setup, words: &[&str]) -> String {
    let list = words.join(" ");
    let script = format!(
        "source {file}
         COMP_WORDS=({list}); COMP_CWORD={at}
         _clap_complete_migctl migctl '{last}' ''
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/scripts/packaging/completions/migctl"
        ),
        at = words.len() - 1,
        last = words.last().unwrap(),
    );
    let migctl = setup.program("migctl");
    let folder = migctl.parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let mut bash = setup.plain(Path::new("bash"));
    bash.args(["--norc", "-c", &script]).env("PATH", path);
    String::from_utf8(bash.output().unwrap().stdout).unwrap()
}

#[test]
fn completes_words_of_the_moment() {
    let setup = with_container();
    for (words, wanted) in [
        (&["migctl", "exp"][..], "explain"),
        (&["migctl", "configure", "po"], "podman"),
        (&["migctl", "release", "tr"], "train-7"),
        (&["migctl", "list", "--namespace", "te"], "team-a"),
        (&["migctl", "explain", "1g.10gb+"], "1g.10gb+me"),
    ] {
        let seen = suggested(&setup, words);
        assert!(seen.contains(wanted), "{words:?}: {seen}");
    }
    setup.runmig(&["delete", "--force", "train-7"]).ok();
    assert!(!suggested(&setup, &["migctl", "release", "tr"]).contains("train-7"));
    for shell in ["bash", "zsh", "fish"] {
        let code = setup.tells(&["completion", shell]);
        assert!(code.contains("MIGCTL_COMPLETE"), "{shell}: {code}");
    }
}

/// A suggestion is untrusted text in a shell.
#[test]
fn suggests_plain_names_alone() {
    let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", 1));
    let bundle = setup.asking("1g.10gb", "true");
    bundle.annotate("io.kubernetes.cri.sandbox-namespace", "team$(reboot)");
    setup.create(&bundle, "train-7");
    assert!(!suggested(&setup, &["migctl", "list", "--namespace", "te"]).contains("team"));
    setup.runmig(&["delete", "--force", "train-7"]).ok();
}
