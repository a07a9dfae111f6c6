//! The completion of migctl: verbs, engines, and the ids, namespaces and profiles of the moment.

use testkit::prelude::*;

/// A machine with a container of a namespace, and thus with an id and the profiles on record.
fn with_container(namespace: &str) -> Setup {
    let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", 1));
    let bundle = setup.asking("1g.10gb", "true");
    bundle.annotate("io.kubernetes.cri.sandbox-namespace", namespace);
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
        file = repository()
            .join("scripts/packaging/completions/migctl")
            .display(),
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
    let setup = with_container("team-a");
    for (words, wanted) in [
        (&["migctl", "exp"][..], "explain"),
        (&["migctl", "configure", "po"], "podman"),
        (&["migctl", "release", "tr"], "train-7"),
        (&["migctl", "list", "--namespace", "te"], "team-a"),
        (&["migctl", "explain", "1g.10gb+"], "1g.10gb+me"),
    ] {
        has(&suggested(&setup, words), wanted);
    }
    setup.delete("train-7");
    lacks(&suggested(&setup, &["migctl", "release", "tr"]), "train-7");
    for shell in ["bash", "zsh", "fish"] {
        has(&setup.tells(&["completion", shell]), "MIGCTL_COMPLETE");
    }
}

/// A suggestion is untrusted text in a shell.
#[test]
fn suggests_plain_names_alone() {
    let setup = with_container("team$(reboot)");
    lacks(
        &suggested(&setup, &["migctl", "list", "--namespace", "te"]),
        "team",
    );
    setup.delete("train-7");
}
