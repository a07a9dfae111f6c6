//! A file system on the machine whose server does not answer. It is mounted where this world's programs
//! alone see it, and its server answers everybody else.

use crate::world_matrix::enter::Inside;
use crate::world_matrix::node::{FILLER, GONE, Node};
use std::fs;
use testkit::faults::operations::PEER;
use testkit::fuse::{Fuse, Holder};

/// A process has a file there open.
pub fn open_file(_node: &Node) -> Result<Inside, &'static str> {
    let holder = Holder::new()?;
    Ok(Inside::default().and_leave(move || {
        if !std::thread::panicking() {
            holder.was_left_alone();
        }
    }))
}

/// The bundles of other containers lie there: of one that lives, and of one that is gone and whose slice
/// nobody has released.
pub fn bundles(node: &Node) -> Result<Inside, &'static str> {
    let mut fuse = Fuse::apart()?;
    let mut others = vec![PEER];
    // It would take the idle slice, or find no room.
    if !node.has_idle() && !node.has_lease(FILLER) {
        let behaviour = node.root().join("behaviour");
        let before = fs::read_to_string(&behaviour).unwrap_or_default();
        node.abandoned(GONE);
        node.behave(&before);
        others.push(GONE);
    }
    for id in others {
        fuse.cover(&node.path("bundles").join(id));
    }
    fuse.hang();
    Ok(Inside::default().and_leave(move || {
        if !std::thread::panicking() {
            fuse.nobody_was_stuck();
        }
    }))
}
