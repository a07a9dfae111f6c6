//! Refusals, in the words that reach the user.

use crate::engine_cri::passed;
use testkit::cri::Cri;
use testkit::images::STAYS;

crate::on_every_engine! { reports_no_room, refuses_wrong_request }

/// crictl's words hold ours, all of them.
#[track_caller]
fn refused(cri: &Cri, slice: &str, words: &str) {
    let pod = cri.pod(&[("runmig.dev/slice", slice)]);
    let said = cri.try_run(&pod, "web", STAYS, &[]).unwrap_err();
    assert!(said.contains(words), "{said}\n--\n{words}");
    let all = cri.crictl(&["ps", "--quiet"]).ok().stdout;
    assert!(cri.setup.leases().len() >= all.lines().count());
}

fn reports_no_room(cri: &mut Cri) {
    let pod = cri.pod(&[("runmig.dev/slice", "7g.80gb")]);
    let id = cri.run(&pod, "all", STAYS);
    refused(
        cri,
        "1g.10gb",
        "runmig: cannot allocate 1g.10gb: too few memory slices are free (0 of 8 on 1 GPU, at most 0 on \
         one); hint: run migctl list to see who holds the slices, or set runmig.dev/wait to wait",
    );
    assert_eq!(cri.setup.the_lease()["container"], id);
    passed(cri, "no room: the user reads why");
}

fn refuses_wrong_request(cri: &mut Cri) {
    refused(
        cri,
        "9g.10gb",
        "runmig: cannot allocate 9g.10gb: no GPU offers the profile; hint: request one of 7g.80gb, 4g.40gb, 3g.40gb,",
    );
    refused(
        cri,
        "1g.10gb*2",
        " asks for several slices, and CUDA uses one MIG device in a process; hint: ask for one larger \
         slice, or run a container for each",
    );
    cri.setup.nothing_is_left();
    passed(cri, "a wrong request: the user reads why");
}
