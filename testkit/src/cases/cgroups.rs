//! A cgroup has one set of device rules, so a container with a slice shares its cgroup with no other.

use crate::bundle::all_open;
use crate::prelude::*;

const GO: &str = "until test -e /go; do sleep 1; done; ";

fn put_into(bundle: &Bundle, cgroup: Option<&str>) {
    bundle.edit(|config| {
        let linux = config["linux"].as_object_mut().unwrap();
        linux.remove("cgroupsPath");
        linux.extend(cgroup.map(|path| ("cgroupsPath".to_owned(), json!(path))));
    });
}

/// The first container runs, the second is refused, and the first one's devices stay open.
#[track_caller]
fn refuses_second(setup: &Setup, cgroup: Option<&str>, (first_id, second_id): (&str, &str)) {
    let first = setup.asking("1g.10gb", &format!("{GO}{OPEN}; echo DONE"));
    let second = setup.asking("1g.10gb", "true");
    put_into(&first, cgroup);
    put_into(&second, cgroup);
    let before = (second.bytes(), second.names());
    let created = setup.create(&first, first_id);
    setup.runmig(&["start", first_id]).ok();
    let (instance, lease) = (setup.machine.the_instance(), setup.the_lease());

    let line = said(&mut setup.under("b", &["create", "-b", second.as_str(), second_id])).refused();
    let start = format!("runmig: cannot create container {second_id}: its cgroup /");
    assert!(line.starts_with(&start), "{line}");
    has(&line, ": process ");
    has(&line, " runs in it; hint: ");
    assert_eq!((second.bytes(), second.names()), before);
    assert_eq!(setup.machine.the_instance(), instance);
    assert_eq!(setup.the_lease(), lease);

    fs::write(first.path.join("rootfs/go"), "").unwrap();
    until("the first has tried its devices", || {
        created.stdout_now().contains("DONE")
    });
    all_open(&created.stdout_now());
    setup.delete(first_id);

    // No process is in it any more.
    said(&mut setup.under("b", &["create", "-b", second.as_str(), second_id])).ok();
    said(&mut setup.under("b", &["delete", "--force", second_id])).ok();
    setup.nothing_is_left();
}

/// Failure: two containers with one cgroup: an equal `linux.cgroupsPath`, or one id under two `--root`
pub fn refuses_path_of_live_container(setup: &Setup) {
    let cgroup = format!("/runmig-e2e-{}/a", unique());
    refuses_second(setup, Some(&cgroup), (&unique(), &unique()));
}

pub fn refuses_id_under_second_root(setup: &Setup) {
    let id = unique();
    refuses_second(setup, None, (&id, &id));
}

pub fn passes_neighbours(setup: &Setup) {
    let parent = format!("/runmig-e2e-{}", unique());
    let ids = ["/b", "/bc", "/c", "-b/b"].map(|name| {
        let (bundle, id) = (setup.asking("1g.10gb", "sleep 1000"), unique());
        put_into(&bundle, Some(&format!("{parent}{name}")));
        setup.create(&bundle, &id);
        setup.runmig(&["start", &id]).ok();
        id
    });
    assert_eq!(setup.leases().len(), 4);
    setup.ends(&ids);
}

/// Neither has a process when both look.
pub fn admits_one_of_two_at_once(setup: &Setup) {
    let cgroup = format!("/runmig-e2e-{}", unique());
    let creates = [(); 2].map(|()| {
        let (bundle, id) = (setup.asking("1g.10gb", "true"), unique());
        put_into(&bundle, Some(&cgroup));
        let mut command = setup.command(&["create", "-b", bundle.as_str(), &id]);
        (id, going(command.stdin(Stdio::null())))
    });
    let mut made = Vec::new();
    for (id, create) in creates {
        let end = create.end();
        match end.status.success() {
            true => made.push(id),
            false => {
                let line = end.refused();
                let start =
                    format!("runmig: cannot create container {id}: its cgroup {cgroup} is in use");
                assert!(line.starts_with(&start), "{line}");
            }
        }
    }
    assert_eq!((made.len(), setup.leases().len()), (1, 1));
    setup.ends(&made);
}
