//! A container of runc with several slices; the rest of them is in `sessions/several.txt`.

use testkit::prelude::*;

#[test]
fn container_on_runc_has_two() {
    let setup = Setup::of(Low::Runc);
    let bundle = setup.asking("1g.10gb*2", SHOW);
    setup.configure("policy.slices_per_container = 2");
    let id = unique();
    let created = setup.create(&bundle, &id);
    let there = setup.machine.instances();
    let open = there
        .iter()
        .flat_map(|i| setup.machine.nodes_of(i))
        .collect();
    setup.finishes(&id);
    let saw = created.stdout_now();
    let uuids = visible(&saw).unwrap().split(',');
    assert_eq!(uuids.clone().count(), 2);
    assert_eq!(
        uuids.collect::<BTreeSet<_>>(),
        there.iter().map(|i| &*i.uuid).collect()
    );
    assert_eq!((there.len(), nodes(&saw)), (2, open));
    setup.runmig(&["delete", &id]).ok();
    assert!(setup.machine.instances().is_empty() && setup.leases().is_empty());
    assert_eq!(bundle.names(), ["config.json", "rootfs"]);
}
