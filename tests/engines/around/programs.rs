//! Control programs that fail, hang and lie about a running server. Each stands before the real one.

use super::*;
use crate::mps::programs::answering;

/// Fails unless `list` says that it cannot tell the limit, for this reason.
#[track_caller]
fn is_unknown(setup: &Setup, holder: &Holder, why: &str) {
    let list = setup.migctl(&["list", "-o", "json"]).ok();
    let json = list.json();
    assert_eq!(json["items"][0]["limitChanged"], Value::Null);
    assert_eq!(json["items"][0]["around"], json!([]));
    let told = format!("cannot read the memory limit of container {}: ", holder.id);
    let line = list.stderr.lines().find(|line| line.contains(&told));
    let line = line.unwrap_or_else(|| panic!("{}", list.stderr));
    has(line, why);
}

/// Fails unless `gc` fails for this reason, and leaves the container alone.
#[track_caller]
fn gc_fails(setup: &Setup, holder: &mut Holder, why: &str) {
    let said = setup.migctl(&["gc"]).exits(1).stdout;
    let row = row(&said, &holder.id);
    let told = format!(
        "cannot set back the memory limit of container {}: ",
        holder.id
    );
    assert!(row.contains(&told) && row.contains(why), "{why}: {said}");
    assert_eq!(holder.first.say("launch 1"), "ok");
}

/// Failure: the MPS control program fails, hangs or lies when it is asked about a running server
#[test]
fn list_goes_on_without_answers() {
    let setup = on(Low::Runc);
    let mut holder = Holder::start(&setup);
    for command in ["get_server_list", "get_device"] {
        answering(&setup, command, "exec sleep 1000");
        is_unknown(&setup, &holder, "did not end in time");
        answering(&setup, command, "echo no daemon >&2; exit 1");
        is_unknown(&setup, &holder, "no daemon");
    }
    for (command, answer, why) in testkit::rows! {
        "get_server_list", "echo many" => "gives \"many\" as the list of its servers";
        "get_server_list", "seq 2000" => "as the list of its servers";
        "get_device", "echo ten" => "its MPS daemon gives the limit as \"ten\"";
    } {
        answering(&setup, command, answer);
        is_unknown(&setup, &holder, why);
    }
    // An answer for a server that has ended since tells nothing.
    let ends = "if [ -e $0.asked ]; then rm $0.asked; else touch $0.asked; echo 1; fi";
    answering(&setup, "get_server_list", ends);
    for verb in ["list", "gc"] {
        assert_eq!(setup.migctl(&[verb]).ok().stderr, "");
    }
    holder.shows(&setup, &[], None, false);
    answering(&setup, "get_device", "head -c 1000000 /dev/zero");
    is_unknown(&setup, &holder, "did not end in time");
    fs::remove_file(setup.path("control")).unwrap();
    is_unknown(&setup, &holder, "no such file or directory");
    gc_fails(&setup, &mut holder, "no such file or directory");
    setup.configure("");
    holder.shows(&setup, &[], None, false);
    holder.end(&setup);
}

#[test]
fn silent_daemons_share_one_time() {
    let setup = on(Low::Runc);
    let holders: Vec<Holder> = (0..4).map(|_| Holder::start(&setup)).collect();
    answering(&setup, "get_server_list", "exec sleep 1000");
    let list = setup.migctl(&["list"]).ok();
    let lines: Vec<&str> = list.stderr.lines().collect();
    let told = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    let late = told("other MPS daemons did not answer within 5 s");
    // Containers with one reason are told in one line.
    let together = told("cannot read the memory limit of containers ");
    assert!(late == 1 && together >= 1, "{}", list.stderr);
    setup.configure("");
    for holder in holders {
        holder.first.end();
    }
    setup.nothing_is_left();
}

#[test]
fn gc_counts_only_limit_read_back() {
    let setup = on(Low::Runc);
    let mut holder = Holder::start(&setup);
    holder.raises(&setup);
    for (command, answer, why) in testkit::rows! {
        "set_device", "echo not allowed" => "to the setting it said \"not allowed\"";
        "set_device", ":" => "tells the limit as \"16G\" and not as 4G after 4096Mi was set";
        "set_device", "exit 3" => "does not take \"set_device_pinned_mem_limit";
        "set_device", "exec sleep 1000" => "did not end in time";
        "get_device", "echo 5G" => "tells the limit as \"5G\"";
        "get_device", "exec sleep 1000" => "did not end in time";
        "get_server_list", "exit 1" => "does not take \"get_server_list\"";
        "get_server_list", "echo x" => "gives \"x\" as the list of its servers";
    } {
        answering(&setup, command, answer);
        gc_fails(&setup, &mut holder, why);
    }
    setup.configure("");
    setup.migctl(&["gc"]).ok();
    holder.shows(&setup, &[], None, false);
    holder.end(&setup);
}

/// A driver that does not tell the processes leaves them unknown.
#[test]
fn driver_that_fails_leaves_processes_alone() {
    let setup = on(Low::Runc);
    let mut holder = Holder::start(&setup);
    let (unheld, _) = holder.exec(&setup, &ELSEWHERE);
    let call = "nvmlDeviceGetMPSComputeRunningProcesses_v3";
    setup.fault(call, "999");
    let list = setup.migctl(&["list", "-o", "json"]).ok();
    assert_eq!(list.json()["items"][0]["around"], Value::Null);
    let told = "cannot list the processes without MPS of container";
    has(&list.stderr, &format!("{told} {}: ", holder.id));
    has(&list.stderr, "(NVML 999)");
    let said = setup.migctl(&["gc"]).exits(1).stdout;
    assert!(row(&said, &holder.id).contains("(NVML 999)"), "{said}");
    setup.sim("fault", &["--clear"]);
    setup.migctl(&["gc"]).ok();
    drop(unheld);
    assert_eq!(holder.first.say("launch 1"), "ok");
    holder.end(&setup);
}

/// A daemon that ends while it is asked is restarted by the next collection.
#[test]
fn dead_daemon_fails_no_limit() {
    let setup = on(Low::Runc);
    let holder = Holder::start(&setup);
    let daemon = holder.daemon(&setup);
    let ends = format!(
        "kill -9 {daemon}; while grep -qs '^State:.[RSD]' /proc/{daemon}/task/*/status; do :; done; exit 1"
    );
    answering(&setup, "get_device", &ends);
    setup.migctl(&["gc"]).ok();
    assert_eq!(holder.lease(&setup)["daemon"]["alive"], false);
    setup.configure("");
    kill(daemon);
    setup.migctl(&["gc"]).ok();
    assert_eq!(holder.lease(&setup)["daemon"]["alive"], true);
    holder.dies(&setup);
}
