//! The hook has an environment of its own. Variables of the container, its image or the engine's
//! caller would else put a library of theirs into a process of root's on the host.

use crate::escapes::on_each;
use testkit::prelude::*;

const MARK: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void mark(void) {
    char name[64] = {0};
    int fd = open("/proc/self/comm", O_RDONLY);
    if (read(fd, name, sizeof name - 1) < 0) return;
    fd = open(getenv("MARK_TO"), O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (write(fd, name, strlen(name)) < 0) return;
    close(fd);
}
"#;

/// A library that writes down whose process it came into.
fn library(setup: &Setup) -> PathBuf {
    let (source, library) = (setup.path("mark.c"), setup.path("mark.so"));
    fs::write(&source, MARK).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .args([&library, &source]);
    said(&mut cc).ok();
    library
}

fn marks(setup: &Setup) -> String {
    fs::read_to_string(setup.path("marks")).unwrap_or_default()
}

#[test]
fn hook_ignores_library_of_caller() {
    on_each(|setup| {
        let library = library(setup);
        let bundle = setup.asking("1g.10gb", "true");
        let id = unique();
        let call = |arguments: &[&str]| {
            let mut command = setup.command(arguments);
            command.env("LD_PRELOAD", &library);
            said(command.env("MARK_TO", setup.path("marks"))).ok();
        };
        call(&["create", "-b", bundle.as_str(), &id]);
        fs::remove_file(setup.path("marks"))
            .expect("the library was loaded into who has the variable");
        call(&["delete", "--force", &id]);
        let marks = marks(setup);
        has(&marks, "runmig\n");
        assert!(!marks.contains("hook"), "{marks}");
        setup.nothing_is_left();
        let log = fs::read_to_string(setup.state().join("runmig.log")).unwrap();
        assert!(!log.contains("ERROR"), "the hook released it: {log}");
    });
}

/// The same from the container: its environment, with a library that is in its rootfs and, should
/// the path be taken for the host's, on the host.
#[test]
fn host_ignores_library_of_image() {
    on_each(|setup| {
        let library = library(setup);
        let bundle = setup.asking("1g.10gb", SHOW);
        let rootfs = bundle.path.join("rootfs");
        let inside = rootfs.join(library.strip_prefix("/").unwrap());
        fs::create_dir_all(inside.parent().unwrap()).unwrap();
        fs::copy(&library, &inside).unwrap();
        let mark_to = setup.path("marks");
        bundle.set_env(&[
            &format!("LD_PRELOAD={}", library.display()),
            "LD_LIBRARY_PATH=/",
            &format!("MARK_TO={}", mark_to.display()),
            "RUNMIG_CONFIG=/tmp/mine.toml",
            "PATH=/tmp:/bin",
            "NVIDIA_VISIBLE_DEVICES=all",
        ]);
        let said = setup.run(&bundle);
        begins_with(visible(&said.stdout).unwrap(), "MIG-");
        assert_eq!(marks(setup), "", "nobody on the host loaded it");
        setup.nothing_is_left();
    });
}

/// Word for word, as the kernel has it of the hook that runs.
#[test]
fn hook_gets_our_environment_alone() {
    on_each(|setup| {
        let bundle = setup.asking("1g.10gb", "true");
        bundle.set_env(&["OF_THE_IMAGE=1"]);
        let id = unique();
        setup.create(&bundle, &id);
        let hook: Value = bundle.config()["hooks"]["poststop"][0].clone();
        // In its place a program that reports its start. runmig trusts the path, since only we can write there.
        let program = setup.program("runmig-hook");
        let seen = setup.path("environ");
        fs::remove_file(&program).unwrap();
        let body = format!("tr '\\0' '\\n' </proc/$$/environ >{}", seen.display());
        script(&program, &body);
        let mut delete = setup.command(&["delete", "--force", &id]);
        delete.env("OF_THE_CALLER", "1");
        said(delete.env("LD_LIBRARY_PATH", "/tmp")).ok();
        let seen = fs::read_to_string(seen).unwrap();
        assert_eq!(json!(seen.lines().collect::<Vec<_>>()), hook["env"]);
        setup.nothing_is_left();
    });
}
