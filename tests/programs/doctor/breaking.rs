//! Breaks one thing, sees that one check alone change, and repairs it.

use super::Diagnosis;
use std::collections::BTreeSet;
use testkit::Setup;

pub fn ids<const N: usize>(ids: [&str; N]) -> BTreeSet<String> {
    ids.map(str::to_owned).into()
}

/// Breaks a thing, sees that this check and no other changes to a status, repairs it, and sees all as before. Returns the text
/// and the repair of the finding.
#[track_caller]
pub fn breaks(
    setup: &Setup,
    group: &str,
    status: &str,
    id: &str,
    broken: impl Fn(),
    repaired: impl Fn(),
) -> (String, String) {
    let only = format!("--only={group}");
    let look = || Diagnosis::of(setup, &[&only]);
    let before = look();
    broken();
    let seen = look();
    changes(&before, &seen, status, id);
    repaired();
    same(&before, &look());
    seen.of_id(id)
}

/// The same in a mount namespace: the scripts of a good and of a broken machine.
#[track_caller]
pub fn breaks_inside(
    setup: &Setup,
    group: &str,
    status: &str,
    id: &str,
    [good, bad]: [&str; 2],
) -> (String, String) {
    let only = format!("--only={group}");
    let before = Diagnosis::inside(setup, good, &[&only]);
    let seen = Diagnosis::inside(setup, bad, &[&only]);
    changes(&before, &seen, status, id);
    seen.of_id(id)
}

/// Runs a repair after the script of a broken machine, and sees nothing that the good one does not have.
#[track_caller]
pub fn repairs_inside(setup: &Setup, group: &str, [good, bad]: [&str; 2], repair: &str) {
    let only = format!("--only={group}");
    let before = Diagnosis::inside(setup, good, &[&only]);
    let after = Diagnosis::inside(setup, &format!("{bad}\n{repair} >&2"), &[&only]);
    same(&before, &after);
}

#[track_caller]
fn changes(before: &Diagnosis, seen: &Diagnosis, status: &str, id: &str) {
    let added = |status: &str| &seen.ids(status) - &before.ids(status);
    assert_eq!(added(status), ids([id]), "{:?}", seen.items);
    let other = ["warn", "fail"]
        .into_iter()
        .filter(|other| *other != status);
    for other in other {
        assert_eq!(added(other), ids([]), "{:?}", seen.items);
    }
    let fails = seen.ids("fail").is_empty();
    assert_eq!(seen.code, Some(i32::from(!fails)));
}

#[track_caller]
fn same(before: &Diagnosis, after: &Diagnosis) {
    let unwell = |seen: &Diagnosis| (seen.ids("fail"), seen.ids("warn"));
    assert_eq!(unwell(after), unwell(before), "{:?}", after.items);
}
