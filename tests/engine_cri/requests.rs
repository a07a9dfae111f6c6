//! Who asks, and what of it reaches runmig.

use crate::passed;
use crate::support::bundle::{SHOW, nodes, visible};
use crate::support::cri::Cri;
use crate::support::images::STAYS;
use crate::support::process::until;

crate::on_every_engine! { a_slice_by_annotation }

fn a_slice_by_annotation(cri: &mut Cri) {
    let pod = cri.pod(&[("runmig.dev/slice", "1g.10gb")]);
    cri.setup.nothing_is_left();
    let id = cri.run(&pod, "web", &format!("{SHOW}; {STAYS}"));
    until("it printed", || cri.logs(&id).contains("VISIBLE="));
    let (lease, instance) = (cri.setup.the_lease(), cri.setup.machine.the_instance());
    assert_eq!(lease["container"], id);
    assert_eq!(lease["state"], "ready");
    let logs = cri.logs(&id);
    assert_eq!(visible(&logs), Some(instance.uuid.as_str()));
    assert_eq!(nodes(&logs), cri.setup.machine.nodes_of(&instance));
    passed(cri, "a slice by annotation");
}
