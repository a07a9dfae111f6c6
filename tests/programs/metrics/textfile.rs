//! The file for node_exporter: whole at any moment, or as it was.

use super::*;
use testkit::prelude::*;

fn folder(setup: &Setup) -> PathBuf {
    let folder = setup.path("collector");
    fs::create_dir(&folder).unwrap();
    chmod(&folder, 0o755);
    folder
}

fn write(setup: &Setup, file: &Path) -> Said {
    setup.migctl(&["metrics", "--textfile", file.to_str().unwrap()])
}

#[test]
fn writes_readable_file() {
    let setup = setup();
    create(&setup, "web", "main", SLICE);
    let file = folder(&setup).join("runmig.prom");
    let mut shell = setup.plain("/bin/sh".as_ref());
    let script = "umask 077; exec \"$0\" metrics --textfile \"$1\"";
    shell.args(["-c", script]).arg(setup.program("migctl"));
    let told = said(shell.arg(&file)).ok();
    assert_eq!((told.stdout.as_str(), told.stderr.as_str()), ("", ""));
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o644);
    assert_eq!(names_in(file.parent().unwrap()), ["runmig.prom"]);
    let text = fs::read_to_string(&file).unwrap();
    begins_with(&text, "# HELP runmig_build_info ");
    let seen = Exposition::read(&text);
    seen.has("runmig_lease_info", &[("pod", "web")], 1.0);
}

/// The file of a driver that fails says so, and does not grow old.
#[test]
fn writes_file_without_driver() {
    let setup = setup();
    let file = folder(&setup).join("runmig.prom");
    fs::remove_file(setup.machine.library()).unwrap();
    let told = write(&setup, &file).ok();
    told.warns("hint: install the NVIDIA driver");
    let seen = Exposition::read(&fs::read_to_string(&file).unwrap());
    seen.has("runmig_driver_up", &[], 0.0);
}

/// Failure: the folder of the textfile is missing, a link, or open to others
#[test]
fn refuses_places_of_others() {
    let setup = setup();
    let folder = folder(&setup);
    let old = folder.join("runmig.prom");
    fs::write(&old, "old\n").unwrap();
    symlink(&old, folder.join("link.prom")).unwrap();
    fs::create_dir(folder.join("folder.prom")).unwrap();
    let open = setup.path("open");
    fs::create_dir(&open).unwrap();
    chmod(&open, 0o777);
    let before = names_in(&folder);
    for (file, why) in testkit::rows! {
        folder.join("runmig.txt") => "its name does not end in .prom; hint: name it runmig.prom";
        folder.join(".prom") => "its name does not end in .prom";
        setup.path("missing/runmig.prom") => "it is not there; hint: install node_exporter";
        folder.join("link.prom") => "it is not a regular file; hint: name a regular file";
        folder.join("folder.prom") => "it is not a regular file; hint: name a regular file";
        open.join("runmig.prom") => "users other than root can write to it (mode 0777); hint: chmod go-w it";
    } {
        let told = write(&setup, &file).exits(1).stderr;
        begins_with(&told, &format!("migctl: cannot write {}: ", file.display()));
        has(&told, why);
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "old\n");
    assert_eq!(names_in(&folder), before);
    assert_eq!(names_in(&open), Vec::<String>::new());
}

#[test]
fn full_folder_keeps_old_file() {
    let setup = setup();
    let folder = folder(&setup);
    let mounted = Mounted::tmpfs(&folder, "size=8k,mode=0755");
    let file = folder.join("runmig.prom");
    fs::write(&file, "old\n").unwrap();
    let told = write(&setup, &file);
    let (kept, left) = (fs::read_to_string(&file).unwrap(), names_in(&folder));
    drop(mounted);
    told.exits(1).warns("No space left on device");
    assert_eq!(kept, "old\n");
    assert_eq!(left, ["runmig.prom"]);
}

/// Failure: a kill or a full disk while `migctl metrics --textfile` writes
#[test]
fn killed_writer_keeps_old_file() {
    let setup = setup();
    let file = folder(&setup).join("runmig.prom");
    fs::write(&file, "old\n").unwrap();
    let mut strace = setup.plain("/usr/bin/strace".as_ref());
    let renames = "rename,renameat,renameat2";
    strace.args(["-f", "-qq", "-o", "/dev/null"]);
    strace.args(["-e", &format!("trace={renames}")]);
    strace.args(["-e", &format!("inject={renames}:signal=KILL"), "-P"]);
    strace.arg(file.with_file_name(".runmig.prom.new"));
    strace.arg(setup.program("migctl"));
    strace.args(["metrics", "--textfile", file.to_str().unwrap()]);
    let told = said(&mut strace);
    assert!(!told.status.success(), "{told:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "old\n");
    let folder = file.parent().unwrap();
    assert_eq!(names_in(folder), [".runmig.prom.new", "runmig.prom"]);
    write(&setup, &file).ok();
    assert!(fs::read_to_string(&file).unwrap().ends_with('\n'));
    assert_eq!(names_in(folder), ["runmig.prom"]);
}

#[test]
fn writers_at_once_leave_whole_file() {
    let setup = setup();
    let file = folder(&setup).join("runmig.prom");
    write(&setup, &file).ok();
    let length = || fs::read_to_string(&file).unwrap().lines().count();
    let whole = length();
    let start = |_| {
        let mut migctl = setup.plain(&setup.program("migctl"));
        going(migctl.args(["metrics", "--textfile"]).arg(&file))
    };
    let writers: Vec<Going> = (0..8).map(start).collect();
    for mut writer in writers {
        while writer.ended().is_none() {
            assert_eq!(length(), whole);
        }
        writer.end().ok();
    }
    assert_eq!(names_in(file.parent().unwrap()), ["runmig.prom"]);
}

/// A writer that is stopped keeps others out for seconds, not for ever.
/// Failure: a writer of the textfile is stopped
#[test]
fn gives_up_on_stopped_writer() {
    let setup = setup();
    let file = folder(&setup).join("runmig.prom");
    write(&setup, &file).ok();
    let before = fs::read(&file).unwrap();
    let folder = fs::File::open(file.parent().unwrap()).unwrap();
    folder.lock().unwrap();
    let refused = write(&setup, &file).exits(1);
    refused.warns("another process is writing it");
    assert_eq!(fs::read(&file).unwrap(), before);
    drop(folder);
    write(&setup, &file).ok();
}
