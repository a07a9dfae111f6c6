//! The daemon itself: its process, its end, its restart.

use super::*;

/// Returns the value of a field of `/proc/PID/status`.
fn status(pid: i32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap().trim_start_matches(':').trim().to_owned()
}

#[test]
fn daemon_has_nothing_of_its_caller() {
    let setup = on(Low::Runc);
    let (id, bundle, client) = client(&setup, "4Gi");
    let pid = setup.daemon(&id);
    // The container's cgroup has no process of it.
    assert!(!in_cgroup(&bundle.cgroup()).contains(&pid));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.rsplit(") ").next().unwrap().split(' ').nth(3);
    assert_eq!(session, Some(pid.to_string().as_str()));
    assert_eq!(status(pid, "SigBlk"), "0000000000000000");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    let mut names: Vec<&str> = { environment.split_terminator('\0') }
        .map(|entry| entry.split('=').next().unwrap())
        .collect();
    let expected = "CUDA_MPS_LOG_DIRECTORY CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_PROTOCOL_VERSION CUDA_VISIBLE_DEVICES PATH";
    names.sort_unstable();
    assert_eq!(names.join(" "), expected);
    let target = |fd: i32| fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
    assert_eq!(target(0), std::path::Path::new("/dev/null"));
    let log = setup.state().join("mps");
    assert!(target(1).starts_with(&log) && target(2).starts_with(&log));
    // An engine waits until all holders of its pipes have closed them. One of these is the client's input.
    let pipes = |pid: &str| -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        let is_pipe = |link: &PathBuf| link.to_string_lossy().starts_with("pipe:");
        links.filter(is_pipe).collect()
    };
    let ours = pipes("self");
    assert!(!ours.is_empty());
    let theirs = pipes(&pid.to_string());
    assert!(!theirs.iter().any(|pipe| ours.contains(pipe)), "{theirs:?}");
    client.end();
    assert!(!lives(pid));
    setup.nothing_is_left();
}

/// Failure: a kill of an MPS daemon
#[test]
fn gc_restarts_daemon_of_living_container() {
    let setup = on(Low::Runc);
    let (id, _, mut first) = client(&setup, "4Gi");
    let held = free(&mut first);
    let pid = setup.daemon(&id);
    kill(pid);
    let list = setup.migctl(&["list"]).ok();
    has(&list.stdout, "ready, daemon ended");
    let told = format!("the MPS daemon of container {id} has ended");
    has(&list.stderr, &told);
    has(&list.stderr, "hint: run migctl gc to restart it");
    assert_eq!(setup.lease(&id)["daemon"]["alive"], false);
    // Until then nothing holds a new process.
    let exec = || Client::exec(&setup, &id, &[]);
    let mut unheld = exec();
    assert!(free(&mut unheld) > held);
    unheld.end();

    let dry = setup.tells(&["gc", "--dry-run"]);
    has(&dry, "its MPS daemon has ended");
    assert_eq!(setup.daemon(&id), pid);
    let said = setup.tells(&["gc"]);
    has(&said, "its MPS daemon had ended and is restarted");
    let again = setup.lease(&id);
    assert_eq!(again["daemon"]["alive"], true);
    assert_eq!(again["daemon"]["restarts"], 1);
    // The same bind mount leads to the new daemon.
    let mut new = exec();
    assert_eq!(free(&mut new), held);
    new.end();
    // A daemon that lives is left alone.
    setup.migctl(&["gc"]).ok();
    assert_eq!(setup.lease(&id)["daemon"], again["daemon"]);
    kill(setup.daemon(&id));
    setup
        .migctl(&["list"])
        .warns("hint: it ended again after a restart: restart the container");
    let refused = setup.migctl(&["gc"]).exits(1);
    has(&refused.stdout, "ended again after a restart");
    first.end();
    setup.nothing_is_left();
}
