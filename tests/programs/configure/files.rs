//! Writes of files: whole, by root alone, with the file's own mode and owner.

use crate::configure::place::{Files, Place, originals};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::prelude::*;

const CONFIG: &str = "/etc/containerd/config.toml";
const TEXT: &str = "version = 2\n";

fn place() -> Option<Place> {
    let Some(program) = on_path("containerd") else {
        skip("containerd is not there; run scripts/setup");
        return None;
    };
    if !nix::unistd::geteuid().is_root() {
        skip("owners are changed by root");
        return None;
    }
    let place = Place::new().of("containerd", &program);
    place.write(CONFIG, TEXT);
    Some(place)
}

#[test]
fn keeps_mode_owner_and_links() {
    let Some(place) = place() else { return };
    let real = place.path("/managed/config.toml");
    fs::create_dir(real.parent().unwrap()).unwrap();
    fs::rename(place.path(CONFIG), &real).unwrap();
    symlink("../../managed/config.toml", place.path(CONFIG)).unwrap();
    chmod(&real, 0o640);
    chown(&real, None, Some(4)).unwrap();
    place.there_and_back(|| {
        let meta = fs::metadata(&real).unwrap();
        let is = (meta.mode() & 0o7777, meta.uid(), meta.gid());
        assert_eq!(is, (0o640, 0, 4));
        has(&fs::read_to_string(&real).unwrap(), "runtimes.runmig]");
    });
    assert_eq!(fs::metadata(&real).unwrap().gid(), 4);
}

#[test]
fn refuses_writable_files_and_links_outside() {
    let Some(place) = place() else { return };
    let refused = |words: &str| drop(place.refused(&[], words));
    let config = place.path(CONFIG);
    chmod(&config, 0o666);
    refused("config.toml: users other than root can write to it (mode 0666)");
    fs::remove_file(&config).unwrap();
    symlink("/etc/hostname", &config).unwrap();
    refused("it leads to /etc/hostname, which is outside --root");
    fs::remove_file(&config).unwrap();
    symlink("/nowhere", &config).unwrap();
    let why = "cannot read /etc/containerd/config.toml: cannot follow its links";
    place.configure(&[]).refused_for(why);
}

#[test]
fn refuses_writable_folders_and_folders_outside() {
    let Some(place) = place() else { return };
    let outside = tempfile::tempdir().unwrap();
    let drop_ins = place.path("/etc/containerd/conf.d");
    symlink(outside.path(), &drop_ins).unwrap();
    place.configure(&[]).refused_for("which is outside --root");
    fs::remove_file(&drop_ins).unwrap();
    fs::create_dir(&drop_ins).unwrap();
    for mode in [0o777, 0o1777] {
        chmod(&drop_ins, mode);
        let why = "/etc/containerd/conf.d: users other than root can write to it";
        place.refused(&[], &format!("{why} (mode {mode:04o})"));
    }
    fs::remove_dir(&drop_ins).unwrap();

    // The same for the link beside runmig.
    let runmig = place.path("/usr/local/bin/runmig");
    fs::copy(runmig, outside.path().join("runmig")).unwrap();
    symlink(outside.path(), place.path("/opt")).unwrap();
    let named = ["--name", "runmig-x", "--runtime-path", "/opt/runmig-x"];
    let why = "cannot use the folder of /opt/runmig-x: it leads to";
    place.refused(&named, why);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn refuses_programs_that_others_write() {
    let Some(place) = place() else { return };
    let link = place.path("/usr/local/bin/runmig-x");
    fs::write(&link, "").unwrap();
    chmod(&link, 0o777);
    for (option, value, words) in testkit::rows! {
        "--name", "runmig-x" =>
            "cannot let an engine call /usr/local/bin/runmig-x as root: users other than root can write to it";
        "--runtime-path", "/a\"b/runmig" => "into an engine's configuration: it has quotes";
    } {
        place.refused(&[option, value], words);
    }
}

#[test]
fn tells_users_to_become_root() {
    let Some(place) = place() else { return };
    let migctl = place.path("/usr/local/bin/migctl");
    let program = on_path("containerd").unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(&migctl);
        command.args(["configure", "containerd", "--executable"]);
        command.arg(&program);
        command.args(["--engine-config", "/nonexistent/config.toml"]);
        said(command.args(arguments).uid(65534).gid(65534))
    };
    let hint = "only root can write below /etc; hint: run it with sudo, or with --dry-run";
    as_nobody(&[]).refused_for(hint);
    let dry = as_nobody(&["--dry-run"]).ok();
    dry.says("+++ b/nonexistent/config.toml");
}

/// An original that an administrator kept under such a name stays, and an error names one of migctl's.
#[test]
fn names_originals_and_keeps_those_of_others() {
    let place = Place::stub("docker", "Docker version 29.9.3, build x");
    let file = "/etc/docker/daemon.json";
    place.write(file, "{\"debug\": true}");
    let theirs = format!("{file}.before-runmig-2026-11-28");
    place.write(&theirs, "{}");
    let before = place.files();
    place.configure(&[]).ok();
    place.configure(&["--remove"]).ok();
    assert_eq!(place.files(), before);
    place.configure(&[]).ok();
    let kept = originals(&place.files());
    let kept = kept.iter().find(|name| !theirs.ends_with(*name)).unwrap();
    place.write(kept, "{");
    let words = format!("cannot read the original {}: ", place.path(kept).display());
    place.refused(&["--remove"], &words);
    chmod(place.path(kept), 0o666);
    let words = format!("{words}users other than root can write to it");
    place.refused(&["--remove"], &words);
}

/// Failure: an engine's file cannot be replaced, since it is a bind mount
#[test]
fn keeps_no_original_of_an_unchanged_file() {
    let place = Place::stub("docker", "Docker version 29.9.3, build x");
    let file = "/etc/docker/daemon.json";
    place.write(file, "{}");
    let before = place.files();
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$1\" \"$1\" && shift && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh"]);
    let configure = place.command(&[]);
    command.arg(place.path(file)).arg(configure.get_program());
    said(command.args(configure.get_args())).refused_for(&format!("cannot write {file}: "));
    assert_eq!(place.files(), before);
}

#[test]
fn readers_see_whole_files() {
    let Some(place) = place() else { return };
    place.configure(&[]).ok();
    let configured = place.read(CONFIG);
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut seen = 0;
            while !over.load(Ordering::Relaxed) {
                let text = place.read(CONFIG);
                assert!(text == TEXT || text == configured, "{text}");
                seen += 1;
            }
            seen
        });
        for _ in 0..10 {
            place.configure(&["--remove"]).ok();
            place.configure(&[]).ok();
        }
        over.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    // Nothing unfinished lies about, but the original.
    let files = place.files();
    let names: Vec<_> = files.keys().cloned().collect();
    let kept = originals(&files);
    assert_eq!(names, ["etc/containerd/config.toml", &kept[0]]);
}

/// Says whether no engine reads a file: it is unfinished, or an original.
fn is_unread(name: &str) -> bool {
    name.starts_with("etc/containerd/.") || name.contains(".before-runmig-")
}

/// Killed at each of the calls that write, it leaves files that are as before or as they are to be,
/// nothing that an engine would read by mistake, and a next run that goes through.
#[test]
fn kill_leaves_whole_files() {
    let (Some(program), Some(strace)) = (built("containerd", "containerd"), on_path("strace"))
    else {
        return skip_until_full("containerd 2 or strace is not there; run scripts/setup");
    };
    let place = Place::new().of("containerd", &program);
    place.write(CONFIG, TEXT);
    let removes = &["--remove"][..];
    let before = place.files();
    place.configure(&[]).ok();
    // A folder that a killed run made stays, since nothing tells it from others: the next run's file may lack these lines.
    let texts: Vec<String> = place.files().into_values().map(|(.., text)| text).collect();
    let lines = texts.iter().flat_map(|text| text.split_inclusive('\n'));
    let made = lines.filter(|line| line.starts_with("# It made the folder "));
    let made: Vec<&str> = made.collect();
    assert!(!made.is_empty());
    let files = || {
        let mut files = place.files();
        for (.., text) in files.values_mut() {
            let lines = text.split_inclusive('\n');
            *text = { lines.filter(|line| !made.contains(line)) }.collect();
        }
        files
    };
    let after = files();
    let whole = |files: &Files| {
        for (name, file) in files {
            let known = [before.get(name), after.get(name)].contains(&Some(file));
            let unread = is_unread(name);
            assert!(known || unread, "{name}: {file:?}");
        }
        // The imported file is there.
        if files["etc/containerd/config.toml"] == after["etc/containerd/config.toml"] {
            assert!(files.contains_key("etc/containerd/conf.d/runmig.toml"));
        }
    };
    let mut killed = 0;
    for (run, back, start, end) in [
        (removes, &[][..], &after, &before),
        (&[], removes, &before, &after),
    ] {
        for call in ["write", "fsync", "fchmod", "rename", "unlink"] {
            for when in 1.. {
                let mut traced = Command::new(&strace);
                let inject = format!("inject={call}:signal=KILL:when={when}");
                traced.args(["-o", "/dev/null", "-e", &format!("trace={call}")]);
                traced.args(["-e", &inject]);
                let command = place.command(run);
                traced.arg(command.get_program()).args(command.get_args());
                let status = said(&mut traced).status;
                whole(&files());
                place.configure(run).ok();
                let now = files();
                let read = |files: &Files| {
                    let mut read = files.clone();
                    read.retain(|name, _| !is_unread(name));
                    read
                };
                assert_eq!(read(&now), read(end), "{call} {when}");
                let drafts = now
                    .keys()
                    .filter(|name| name.starts_with("etc/containerd/."));
                drafts.for_each(|name| fs::remove_file(place.path(name)).unwrap());
                place.configure(back).ok();
                assert_eq!(&files(), start);
                if status.success() {
                    break;
                }
                killed += 1;
            }
        }
        place.configure(run).ok();
    }
    assert!(killed > 10, "{killed}");
}

/// Every folder below /etc.
fn folders(place: &Place) -> Vec<PathBuf> {
    let mut found = all_below(&place.path("/etc"));
    found.retain(|path| path.is_dir());
    found
}

#[test]
fn removal_takes_its_folders_along() {
    let engines = testkit::rows! {
        "crio", "crio version 1.36.3", "crio/crio.conf.d" => "crio";
        "podman", "podman version 5.8.3", "containers/containers.conf.d" => "containers";
        "docker", "Docker version 29.9.3, build x", "docker" => "";
        "containerd", "containerd x v2.3.2 x", "containerd/conf.d" => "containerd";
    };
    for (engine, version, folder, above) in engines {
        let place = Place::stub(engine, version);
        fs::create_dir_all(place.path("/etc/other")).unwrap();
        let remove = &["--remove"];
        let before = folders(&place);
        for _ in 0..2 {
            place.configure(&[]).ok();
            assert!(place.path("/etc").join(folder).is_dir(), "{folder}");
            place.configure(&[]).ok();
            place.configure(remove).ok();
            assert_eq!(folders(&place), before, "{engine}");
        }
        // The last of two handlers takes them along.
        let names = [
            ["--name", "1g", "--request", "slice=1g.10gb"],
            ["--name", "2g", "--request", "slice=2g.20gb"],
        ];
        for name in &names {
            place.configure(name).ok();
        }
        for name in &names {
            place.configure(&[&name[..2], remove].concat()).ok();
        }
        assert_eq!(folders(&place), before, "{engine}");
        // A folder with a file of somebody else stays, whoever made it, and so does one that was there.
        let theirs = format!("/etc/{folder}/readme");
        place.configure(&[]).ok();
        place.write(&theirs, "");
        place.configure(remove).ok();
        assert!(place.path(&theirs).exists());
        fs::remove_file(place.path(&theirs)).unwrap();
        place.write(&format!("/etc/{above}/theirs"), "");
        fs::remove_dir_all(place.path("/etc").join(folder)).unwrap();
        for empty in [false, true] {
            if empty {
                fs::create_dir_all(place.path("/etc").join(folder)).unwrap();
            }
            let before = folders(&place);
            place.configure(&[]).ok();
            place.configure(remove).ok();
            assert_eq!(folders(&place), before, "{engine} {empty}");
        }
    }
}

/// An engine that is gone leaves its files behind, and has no version to ask for.
#[test]
fn removal_needs_no_engine() {
    let gone = testkit::rows! {
        "crio" => "crio version 1.36.3";
        "podman" => "podman version 5.8.3";
        "docker" => "Docker version 29.9.3, build x";
    };
    for (engine, version) in gone {
        let place = Place::stub(engine, version);
        place.configure(&[]).ok();
        let place = place.calls(&[engine]);
        // Where this machine has one.
        let script = "for d in local/sbin local/bin sbin bin; do mount --bind \"$1\" /usr/$d; done
                      shift; PATH=/none exec \"$@\"";
        let mut command = Command::new("unshare");
        let remove = place.command(&["--remove"]);
        fs::create_dir(place.path("/none")).unwrap();
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command.arg(place.path("/none")).arg(remove.get_program());
        said(command.args(remove.get_args())).ok();
        assert!(place.files().is_empty());
    }
}

/// migctl runs an engine's program as root.
#[test]
fn runs_no_program_that_others_can_write() {
    for (engine, version) in testkit::rows! {
        "podman" => "podman version 5.8.3";
        "docker" => "Docker version 29.9.3, build x";
    } {
        let place = Place::stub(engine, version);
        let (program, ran) = (place.path("/opt").join(engine), place.path("/ran"));
        let body = format!("touch {}; echo {version}", ran.display());
        script(&program, &body);
        place.configure(&["--dry-run"]).ok();
        fs::remove_file(&ran).unwrap();
        chmod(&program, 0o777);
        let why =
            "--version: users other than root can write to it (mode 0777); hint: chmod go-w it";
        place.refused(&[], &format!("cannot run {} {why}", program.display()));
        chmod(&program, 0o755);
        chown(&program, Some(65534), None).unwrap();
        place.refused(&["--remove"], "belongs to user 65534, not to root");
        assert!(!ran.exists());
    }
}
