//! The completion of migctl in real shells: verbs, engines, and the ids, profiles and handlers of the moment.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Low, Machine, Setup};

/// Returns the words that a shell suggests after these words, the last of which is unfinished.
fn bash(setup: &Setup, words: &[&str]) -> String {
    let list = words.iter().map(|word| format!("'{word}'"));
    let list = list.collect::<Vec<_>>().join(" ");
    let script = format!(
        "source {file}
         COMP_WORDS=({list}); COMP_CWORD={at}
         _clap_complete_migctl migctl '{last}' ''
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        file = shipped("migctl").display(),
        at = words.len() - 1,
        last = words.last().unwrap(),
    );
    said(setup, "bash", &["--norc", "-c", &script])
}

fn fish(setup: &Setup, words: &[&str]) -> String {
    let file = shipped("migctl.fish");
    let script = format!(
        "source {}; complete -C '{}'",
        file.display(),
        words.join(" ")
    );
    said(setup, "fish", &["--no-config", "-c", &script])
}

/// zsh completes only for a terminal, which its module zpty makes.
fn zsh(setup: &Setup, words: &[&str]) -> String {
    let folder = setup.path("zsh");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(shipped("_migctl"), folder.join("_migctl")).unwrap();
    // The shell reads its keys in order: the words, TAB, the end of the line, a command.
    let script = format!(
        "zmodload zsh/zpty
         zpty shell 'PS1=READY. zsh -f -i'
         zpty -r -m shell seen '*READY.*'
         zpty -w shell 'fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -d {folder}/dump; unsetopt automenu beep; bindkey -e; PS1=RE\"\"ADIER.'
         zpty -r -m shell seen '*READIER.*'
         zpty -n -w shell $'{words}\\t\\x15print DO\"\"NE\\n'
         zpty -r -m shell seen '*DONE*'
         print -r -- $seen
         zpty -d shell",
        folder = folder.display(),
        words = words.join(" "),
    );
    said(setup, "timeout", &["120", "zsh", "-f", "-c", &script])
}

fn shipped(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/packaging/completions");
    folder.join(name)
}

fn said(setup: &Setup, shell: &str, arguments: &[&str]) -> String {
    let migctl = setup.program("migctl");
    let folder = migctl.parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let mut command = setup.plain(Path::new(shell));
    let output = command.args(arguments).env("PATH", path).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").output().is_ok();
    if !found {
        testkit::skip(&format!("{shell} is not there: apt-get install {shell}"));
    }
    found
}

/// A machine with a container, and thus with an id and the profiles on record.
fn with_container() -> Option<Setup> {
    let setup = Setup::on(Low::Runc, Machine::new("A100-80GB", 1))?;
    let bundle = setup.asking("1g.10gb", "true");
    bundle.annotate("io.kubernetes.cri.sandbox-namespace", "team-a");
    setup
        .runmig(&["create", "-b", bundle.as_str(), "train-7"])
        .ok();
    Some(setup)
}

fn completes(shell: &str, complete: impl Fn(&Setup, &[&str]) -> String) {
    if !has(shell) {
        return;
    }
    let Some(setup) = with_container() else {
        return;
    };
    for (words, wanted) in [
        (&["migctl", "exp"][..], "explain"),
        (&["migctl", "configure", "po"], "podman"),
        (&["migctl", "release", "tr"], "train-7"),
        (&["migctl", "events", "--container", "tr"], "train-7"),
        (&["migctl", "list", "--namespace", "te"], "team-a"),
        (&["migctl", "explain", "1g.10gb+"], "1g.10gb+me"),
        (&["migctl", "doctor", "--only", "state.sp"], "state.space"),
    ] {
        let seen = complete(&setup, words);
        assert!(seen.contains(wanted), "{shell}, {words:?}: {seen}");
    }
    setup.runmig(&["delete", "--force", "train-7"]).ok();
    assert!(!complete(&setup, &["migctl", "release", "tr"]).contains("train-7"));
}

#[test]
fn completes_in_bash() {
    completes("bash", bash);
}

#[test]
fn completes_in_fish() {
    completes("fish", fish);
}

#[test]
fn completes_in_zsh() {
    completes("zsh", zsh);
}

/// A suggestion is text of others in a shell.
#[test]
fn suggests_plain_names_alone() {
    let Some(setup) = with_container() else {
        return;
    };
    let state = setup.path("hostile.toml");
    std::fs::write(&state, "state_dir = \"/nowhere\"\n").unwrap();
    let mut migctl = setup.plain(&setup.program("migctl"));
    let asked = [
        "--",
        "migctl",
        "--config",
        state.to_str().unwrap(),
        "release",
        "",
    ];
    let output = migctl
        .env("MIGCTL_COMPLETE", "fish")
        .args(asked)
        .output()
        .unwrap();
    let seen = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !seen.contains("train-7"),
        "{seen}"
    );
    setup.runmig(&["delete", "--force", "train-7"]).ok();
}
