//! The life of a daemon with NVIDIA's own control program. It needs no GPU before a client comes.

use super::*;

/// Returns NVIDIA's program, as `scripts/fetch-nvidia-clients` puts it beside the build.
fn real() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let real = target.join("nvidia-clients/bin/nvidia-cuda-mps-control");
    if !real.exists() {
        testkit::skip("NVIDIA's control program is not there: run scripts/fetch-nvidia-clients");
        return None;
    }
    Some(fs::canonicalize(real).unwrap())
}

#[test]
fn real_program_starts_holds_and_ends() {
    let setup = on(Low::Runc);
    let Some(real) = real() else { return };
    // That of driver 535 has no server for several users, which matters to clients alone.
    let front = setup.path("control");
    let script = format!(
        "#!/bin/sh\ncase $1 in\n-h) echo '-M,--multiuser-server' ;;\n-f) exec {0} -f ;;\n*) exec {0} \"$@\" ;;\nesac\n",
        real.display()
    );
    testkit::runtimes::program(&front, &script);
    setup.configure(&format!("sharing.mps_control = \"{}\"", front.display()));
    let (id, bundle) = (unique(), asking(&setup, "5000Mi"));
    setup.create(&bundle, &id);
    let pid = setup.daemon(&id);
    assert_eq!(fs::read_link(format!("/proc/{pid}/exe")).unwrap(), real);
    let home = fs::read_dir(setup.state().join("mps")).unwrap().next();
    let home = home.unwrap().unwrap().path();
    let limit = |home: &Path| {
        let mut ask = Command::new("sh");
        ask.args(["-c", "echo get_default_device_pinned_mem_limit 0 | \"$0\""]);
        ask.env("CUDA_MPS_PIPE_DIRECTORY", home.join("pipes"));
        said(ask.arg(&real)).ok().stdout
    };
    assert_eq!(limit(&home).trim(), "4G");
    let inode = |name: &str| fs::metadata(home.join(name)).unwrap().ino();
    assert_eq!(inode("door/control"), inode("pipes/control"));
    // A new daemon has a new socket in the same directory.
    let old = inode("door/control");
    kill(pid);
    setup.migctl(&["gc"]).ok();
    let again = setup.daemon(&id);
    assert!(again != pid && lives(again));
    assert_eq!(limit(&home).trim(), "4G");
    assert_eq!(inode("door/control"), inode("pipes/control"));
    assert_ne!(inode("door/control"), old);
    setup.delete(&id);
    assert!(!lives(again));
    setup.nothing_is_left();
}
