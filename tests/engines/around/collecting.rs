//! `migctl gc` names the processes that bypass MPS, and nothing else.

use super::*;
use testkit::process::with_argument;

/// Another container that holds the GPU at its index whole, with a plain CUDA process.
fn whole_gpu(setup: &Setup) -> Client {
    let bundle = setup.bundle("exec sleep 1000");
    bundle.annotate("runmig.dev/gpu", "1");
    let mut client = Client::run(setup, &bundle, &unique());
    free(&mut client);
    client
}

fn names_what_bypasses_mps_alone(low: Low) {
    let setup = on_two(low);
    // A plain process without a share, one of another user of the machine, and one in each other container.
    let mut whole = whole_gpu(&setup);
    let mut holder = Holder::start(&setup);
    let mut neighbour = Holder::start(&setup);
    let mut foreign = setup.machine.sim_command("hold");
    foreign.args(["--gpu", "1", "--memory", "300Mi"]);
    let mut foreign = going(&mut foreign);
    foreign.until("holding GPU 1");
    holder.shows(&setup, &[], None, false);
    let (mut held, _) = holder.exec(&setup, &[]);
    let (mut unheld, pid) = holder.exec(&setup, &ELSEWHERE);
    assert!(free(&mut unheld) > MEMORY);
    holder.shows(&setup, &[pid], None, false);
    neighbour.shows(&setup, &[], None, false);
    assert_eq!(unheld.say("alloc 5000"), "ok");
    holder.shows(&setup, &[pid], None, true);
    let said = setup.tells(&["gc"]);
    assert!(!row(&said, &neighbour.id).contains("MPS"), "{said}");
    let (also, other) = neighbour.exec(&setup, &ELSEWHERE);
    let before = (holder.daemon(&setup), holder.server(&setup));

    let said = setup.tells(&["gc"]);
    for (id, pid) in [(&holder.id, pid), (&neighbour.id, other)] {
        let told = format!("process {pid} bypasses MPS and has no memory limit");
        assert!(row(&said, id).contains(&told), "{said}");
        let log = fs::read_to_string(setup.state().join("runmig.log")).unwrap();
        has(&log, &told);
    }
    assert_eq!(said.matches("bypasses").count(), 2, "{said}");
    // By default it is only told.
    for client in [
        &mut holder.first,
        &mut held,
        &mut unheld,
        &mut neighbour.first,
        &mut whole,
    ] {
        assert_eq!(client.say("launch 1"), "ok");
    }
    assert!(foreign.ended().is_none() && lives(pid) && lives(other));
    assert_eq!((holder.daemon(&setup), holder.server(&setup)), before);
    unheld.end();
    holder.shows(&setup, &[], None, false);
    drop((also, foreign));
    held.end();
    whole.end();
    neighbour.first.end();
    holder.end(&setup);
}

testkit::tests! {
    /// Failure: a process of a container bypasses MPS: another pipe directory, a start while the daemon is dead, a daemon of its own, a mount over the socket
    runc_names_what_bypasses_mps_alone: names_what_bypasses_mps_alone(Low::Runc);
    crun_names_what_bypasses_mps_alone: names_what_bypasses_mps_alone(Low::Crun);
}

/// A server that others moved into the container's cgroup is the daemon's all the same.
#[test]
fn server_in_containers_cgroup_is_the_daemons() {
    let setup = on(Low::Runc);
    let mut holder = Holder::start(&setup);
    let server = holder.server(&setup);
    let mut moved = 0;
    for cgroup in cgroups(&holder.bundle.cgroup()) {
        fs::write(cgroup.join("cgroup.procs"), server.to_string()).unwrap();
        moved += 1;
    }
    assert!(moved > 0 && holder.pids().contains(&server));
    holder.shows(&setup, &[], None, false);
    assert_eq!(holder.first.say("launch 1"), "ok");
    // In that cgroup it would be a sign that the container lives.
    testkit::process::kill(server);
    holder.end(&setup);
}

/// Returns the directories of a cgroup of the host.
fn cgroups(name: &str) -> Vec<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    let below = fs::read_dir(&root).unwrap().flatten();
    let all = below.map(|hierarchy| hierarchy.path().join(name));
    let mut all: Vec<PathBuf> = all.chain([root.join(name)]).collect();
    all.retain(|cgroup| cgroup.join("cgroup.procs").exists());
    all
}

/// After the daemon's death everything bypasses MPS.
#[test]
fn names_what_bypasses_after_restart_of_daemon() {
    let setup = on(Low::Runc);
    let holder = Holder::start(&setup);
    testkit::process::kill(holder.daemon(&setup));
    let (unheld, pid) = holder.exec(&setup, &[]);
    let said = setup.tells(&["gc"]);
    let row = row(&said, &holder.id);
    has(row, "is restarted");
    has(row, &format!("process {pid} bypasses MPS"));
    let (mut next, _) = holder.exec(&setup, &[]);
    assert_eq!(free(&mut next), HELD);
    next.end();
    drop(unheld);
    holder.dies(&setup);
}

/// The shipped unit takes capabilities away from the collector.
#[test]
fn timers_rights_suffice() {
    let setup = on(Low::Runc);
    let unit = fs::read_to_string(repository().join("systemd/runmig-gc.service")).unwrap();
    let mut lines = unit.lines();
    let kept = lines.find_map(|l| l.strip_prefix("CapabilityBoundingSet="));
    let kept = kept.unwrap().to_lowercase();
    let kept: BTreeSet<&str> = kept.split(' ').collect();
    let all = said(Command::new("setpriv").arg("--list-caps")).ok().stdout;
    let dropped: Vec<String> = { all.lines() }
        .filter(|name| !kept.contains(&*format!("cap_{name}")))
        .map(|name| format!("-{name}"))
        .collect();
    assert!(dropped.contains(&"-net_admin".to_owned()), "{dropped:?}");
    // It ends the servers of every user.
    assert!(kept.contains("cap_kill"), "{kept:?}");
    let holder = Holder::start(&setup);
    holder.raises(&setup);
    let (unheld, pid) = holder.exec(&setup, &ELSEWHERE);
    let mut gc = Command::new("setpriv");
    gc.arg(format!("--bounding-set={}", dropped.join(",")));
    gc.args(["--no-new-privs", "--"])
        .arg(setup.program("migctl"));
    let said = said(gc.arg("gc").env("RUNMIG_CONFIG", setup.config()));
    let said = said.ok().stdout;
    let row = row(&said, &holder.id);
    has(row, &format!("process {pid} bypasses MPS"));
    has(row, "is set back");
    drop(unheld);
    holder.end(&setup);
}

#[test]
fn list_without_shares_asks_nobody() {
    let setup = on(Low::Runc);
    let whole = whole_gpu(&setup);
    let traces = setup.path("called");
    let program = setup.path("control");
    script(&program, &format!("touch {}", traces.display()));
    setup.configure(&format!("sharing.mps_control = \"{}\"", program.display()));
    let aside = setup.machine.library().with_extension("aside");
    fs::rename(setup.machine.library(), &aside).unwrap();
    for verb in [&["list"][..], &["list", "-o", "json"], &["gc"]] {
        let said = setup.migctl(verb).ok();
        assert_eq!(said.stderr, "");
    }
    assert!(!traces.exists());
    fs::rename(aside, setup.machine.library()).unwrap();
    whole.end();
    setup.nothing_is_left();
    assert_eq!(with_argument(&program.display().to_string()), [0; 0]);
}
