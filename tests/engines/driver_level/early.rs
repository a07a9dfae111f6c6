//! A low-level runtime that records the first process of a foreground container before it runs the hook.

use super::*;
use testkit::runtimes::script;

/// The hook waits until the lease is ready, and only then sets the limit. The container goes on.
#[test]
fn waits_for_hook_of_ready_container() {
    let setup = on(Low::Runc, Keeper::Misc);
    let (id, bundle) = (unique(), asking(&setup, "2Gi"));
    let hook = setup.program("runmig-hook");
    let real = hook.with_file_name("hook");
    fs::rename(&hook, &real).unwrap();
    let record = setup.root("a").join(&id).join("state.json");
    let (told, migctl) = (setup.path("told"), setup.program("migctl"));
    let body = format!(
        "[ \"$1\" = --limit ] || exec {real} \"$@\"\n\
         cat > {told}\n\
         pid=$(grep -o '\"pid\": *[0-9]*' {told} | grep -o '[0-9]*$')\n\
         start=$(cut -d ' ' -f 22 /proc/$pid/stat)\n\
         echo \"{{\\\"init_process_pid\\\": $pid, \\\"init_process_start\\\": $start}}\" > {record}.new\n\
         mv {record}.new {record}\n\
         until RUNMIG_CONFIG={config} {migctl} list -o json 2>/dev/null | grep -q '\"state\": *\"ready\"'\n\
         do kill -0 $pid || exit 1\n\
         done\n\
         exec {real} \"$@\" < {told}",
        real = real.display(),
        told = told.display(),
        record = record.display(),
        config = setup.config().display(),
        migctl = migctl.display(),
    );
    script(&hook, &body);
    let mut client = Client::run(&setup, &bundle, &id);
    assert!(client.say("info").starts_with("total 2048 "));
    let limited = vec![(format!("/{}", bundle.cgroup()), 2048 * MIB)];
    assert_eq!(limits(&setup), limited);
    client.end();
    setup.nothing_is_left();
}
