//! Breaks one thing, sees that one check alone change, and repairs it.

use super::Diagnosis;
use testkit::prelude::*;

pub fn ids<const N: usize>(ids: [&str; N]) -> BTreeSet<String> {
    ids.map(str::to_owned).into()
}

fn group(id: &str) -> &str {
    id.split('.').next().unwrap()
}

/// Breaks a thing, sees that this check and no other changes to a status, repairs it, and sees all as before. Returns the text
/// and the repair of the finding.
#[track_caller]
pub fn breaks(
    setup: &Setup,
    status: &str,
    id: &str,
    broken: impl Fn(),
    repaired: impl Fn(),
) -> (String, String) {
    let only = format!("--only={}", group(id));
    let look = || Diagnosis::of(setup, &[&only]);
    let before = look();
    broken();
    let seen = look();
    changes(&before, &seen, status, id);
    repaired();
    same(&before, &look());
    seen.of_id(id)
}

/// The same for a file that has other bytes.
#[track_caller]
pub fn breaks_file(
    setup: &Setup,
    status: &str,
    id: &str,
    file: &Path,
    bad: impl AsRef<[u8]>,
) -> (String, String) {
    let good = fs::read(file).unwrap();
    let write = |bytes: &[u8]| fs::write(file, bytes).unwrap();
    breaks(setup, status, id, || write(bad.as_ref()), || write(&good))
}

/// The same in a mount namespace: the scripts of a good and of a broken machine.
#[track_caller]
pub fn breaks_inside<S: AsRef<str>>(
    setup: &Setup,
    status: &str,
    id: &str,
    worlds: [S; 2],
) -> (String, String) {
    let only = format!("--only={}", group(id));
    let [before, seen] = worlds.map(|world| Diagnosis::inside(setup, world.as_ref(), &[&only]));
    changes(&before, &seen, status, id);
    seen.of_id(id)
}

/// Runs a repair after the script of a broken machine, and sees nothing that the good one does not have.
#[track_caller]
pub fn repairs_inside(setup: &Setup, id: &str, [good, bad]: [&str; 2], repair: &str) {
    let only = format!("--only={}", group(id));
    let before = Diagnosis::inside(setup, good, &[&only]);
    let after = Diagnosis::inside(setup, &format!("{bad}\n{repair} >&2"), &[&only]);
    same(&before, &after);
}

#[track_caller]
fn changes(before: &Diagnosis, seen: &Diagnosis, status: &str, id: &str) {
    let added = |status: &str| &seen.ids(status) - &before.ids(status);
    assert_eq!(added(status), ids([id]), "{:?}", seen.items);
    let other = if status == "warn" { "fail" } else { "warn" };
    assert_eq!(added(other), ids([]), "{:?}", seen.items);
    let fails = seen.ids("fail").is_empty();
    assert_eq!(seen.code, Some(i32::from(!fails)));
}

#[track_caller]
fn same(before: &Diagnosis, after: &Diagnosis) {
    let unwell = |seen: &Diagnosis| (seen.ids("fail"), seen.ids("warn"));
    assert_eq!(unwell(after), unwell(before), "{:?}", after.items);
}

/// A script that gives a mount namespace an `/etc` with little in it.
pub fn etc(setup: &Setup) -> String {
    let folder = setup.path(&format!("etc-{}", unique()));
    let folder = folder.display();
    format!(
        "mkdir {folder}
         cp -a /etc/ld.so* /etc/passwd /etc/group /etc/nsswitch.conf {folder}
         mount --bind {folder} /etc"
    )
}

/// A script that starts a process with this command name, whose pid is then `$pid`.
pub fn process(setup: &Setup, name: &str) -> String {
    let program = setup.path(name);
    if !program.exists() {
        copy_program("/bin/sleep".as_ref(), &program);
    }
    // The kernel keeps 15 characters of the name.
    let short = &name[..name.len().min(15)];
    format!(
        "{} 600 </dev/null >/dev/null 2>&1 & pid=$!
         timeout 60 sh -c \"until grep -qx {short} /proc/$pid/comm; do sleep 0.01; done\"",
        program.display()
    )
}
