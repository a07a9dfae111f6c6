//! Ways out: everything by which a container, its image or its user could get at more than the
//! slice, or at the host through us. Each on real containers, judged from inside.

mod devices;
mod environment;
mod files;
mod inside;
mod links;
mod podman;
mod readings;
mod words;

use testkit::prelude::*;

/// On runc and on crun.
#[track_caller]
fn on_each(test: impl Fn(&Setup)) {
    for low in [Low::Runc, Low::Crun] {
        test(&Setup::of(low));
    }
}
